//! Known stages, indexed by small numbers.

use super::needs::Needs;
use super::rate::Rate;
use super::work::MemoryEstimate;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// Number of stages after which the least recently used one without sessions and work is replaced.
const KNOWN: usize = 1024;

pub(super) type StageId = usize;

#[derive(Debug)]
pub(super) struct Stages<S> {
    ids: HashMap<S, StageId>,
    states: Vec<StageState<S>>,
    uses: u64,
    /// True if lanes only open stages that were prepared.
    prepares: bool,
    /// Stages with work items that have to be prepared.
    unprepared: BTreeSet<StageId>,
}

/// Preparation of a stage, which precedes the first session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Unprepared,
    Preparing,
    Ready,
}

/// Measurements and state of a stage.
#[derive(Debug)]
pub(super) struct StageState<S> {
    pub(super) stage: S,
    pub(super) rate: Rate,
    pub(super) needs: Needs,
    /// Number of waiting rows.
    pub(super) waiting: usize,
    /// Lanes with a session, busy or idle.
    pub(super) lanes: Vec<usize>,
    pub(super) readiness: Readiness,
    /// Shortest measured duration of opening a session. Other openings took longer because the machine was busy.
    pub(super) opening: Option<Duration>,
    pub(super) works: usize,
    last_use: u64,
}

impl<S> StageState<S> {
    fn is_used(&self) -> bool {
        self.works > 0 || !self.lanes.is_empty() || self.readiness == Readiness::Preparing
    }
}

impl<S: Clone + Eq + Hash> Stages<S> {
    /// Creates an empty list. With `prepares`, stages are prepared before the first session.
    pub(super) fn new(prepares: bool) -> Self {
        Self {
            ids: HashMap::new(),
            states: Vec::new(),
            uses: 0,
            prepares,
            unprepared: BTreeSet::new(),
        }
    }

    /// Adds a work item of a stage.
    pub(super) fn enter(&mut self, stage: &S, guess: MemoryEstimate) -> StageId {
        let id = self.id(stage, guess);
        self.uses += 1;
        let uses = self.uses;
        if let Some(known) = self.states.get_mut(id) {
            known.works += 1;
            known.last_use = uses;
        }
        self.sort_by_readiness(id);
        id
    }

    /// Removes a work item of a stage.
    pub(super) fn leave(&mut self, id: StageId) {
        if let Some(known) = self.states.get_mut(id) {
            known.works = known.works.saturating_sub(1);
        }
        self.sort_by_readiness(id);
    }

    /// Changes the preparation of a stage. Has no effect if stages need no preparation.
    pub(super) fn set_readiness(&mut self, id: StageId, readiness: Readiness) {
        if let Some(known) = self.states.get_mut(id).filter(|_| self.prepares) {
            known.readiness = readiness;
        }
        self.sort_by_readiness(id);
    }

    /// True if a stage with work items has to be prepared.
    pub(super) fn has_unprepared(&self) -> bool {
        !self.unprepared.is_empty()
    }

    fn sort_by_readiness(&mut self, id: StageId) {
        match self
            .get(id)
            .is_some_and(|known| known.works > 0 && known.readiness == Readiness::Unprepared)
        {
            true => self.unprepared.insert(id),
            false => self.unprepared.remove(&id),
        };
    }

    fn id(&mut self, stage: &S, guess: MemoryEstimate) -> StageId {
        if let Some(id) = self.ids.get(stage) {
            return *id;
        }
        let new = StageState {
            stage: stage.clone(),
            rate: Rate::default(),
            needs: Needs::new(guess),
            waiting: 0,
            lanes: Vec::new(),
            readiness: match self.prepares {
                true => Readiness::Unprepared,
                false => Readiness::Ready,
            },
            opening: None,
            works: 0,
            last_use: 0,
        };
        let unused = self
            .states
            .iter()
            .enumerate()
            .filter(|(_, known)| !known.is_used());
        let oldest = unused.min_by_key(|(_, known)| known.last_use).map(|(id, _)| id);
        let place = oldest.filter(|_| self.states.len() >= KNOWN);
        let id = place.unwrap_or(self.states.len());
        match self.states.get_mut(id) {
            Some(old) => {
                self.ids.remove(&old.stage);
                *old = new;
            }
            None => self.states.push(new),
        }
        self.ids.insert(stage.clone(), id);
        id
    }

    #[cfg(test)]
    pub(super) fn find(&self, stage: &S) -> Option<&StageState<S>> {
        self.get(*self.ids.get(stage)?)
    }

    pub(super) fn get(&self, id: StageId) -> Option<&StageState<S>> {
        self.states.get(id)
    }

    pub(super) fn get_mut(&mut self, id: StageId) -> Option<&mut StageState<S>> {
        self.states.get_mut(id)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &StageState<S>> {
        self.states.iter()
    }
}
