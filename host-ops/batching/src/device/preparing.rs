//! Preparation of stages, which precedes the first session and needs no lane.

use super::Device;
use super::decision::{Awaited, Decision};
use super::in_flight::{Payer, Preparing};
use super::stages::Readiness;
use super::work::TIME_SLICE;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

impl<S: Clone + Eq + Hash> Device<S> {
    /// Starts the preparation for the first work item in scheduling order that needs one.
    pub(super) fn next_preparation(&mut self, now: Duration) -> Option<Decision<S>> {
        let slot = self.preparing.iter().position(Option::is_none)?;
        if !self.stages.has_unprepared() {
            return None;
        }
        let (_, entry) = self.queue.iter().find(|(_, entry)| {
            self.stages
                .get(entry.stage)
                .is_some_and(|known| known.readiness == Readiness::Unprepared)
        })?;
        let preparing = Preparing {
            stage: entry.stage,
            since: now,
            payer: Payer {
                tenant: Arc::clone(&entry.tenant),
                line: Arc::clone(&entry.line),
                rows: 1,
            },
        };
        let stage = self.stages.get(preparing.stage)?.stage.clone();
        self.stages.set_readiness(preparing.stage, Readiness::Preparing);
        self.charge_guess(std::slice::from_ref(&preparing.payer), TIME_SLICE);
        let tenant = Arc::clone(&preparing.payer.tenant);
        *self.preparing.get_mut(slot)? = Some(preparing);
        Some(Decision::Prepare { slot, stage, tenant })
    }

    /// Records that a preparation ended at `now`. With `ready`, lanes may open the stage: it was prepared, or
    /// runs from its bytes. Otherwise, work items of the stage cause another preparation.
    pub fn prepared(&mut self, now: Duration, slot: usize, ready: bool) {
        let Some(ended) = self.preparing.get_mut(slot).and_then(Option::take) else {
            return;
        };
        let readiness = match ready {
            true => Readiness::Ready,
            false => Readiness::Unprepared,
        };
        self.stages.set_readiness(ended.stage, readiness);
        self.charge(std::slice::from_ref(&ended.payer), TIME_SLICE, ended.since, now);
        self.note_activity(&ended.payer.tenant, now, None);
    }

    /// Records that a lane opened the session for its batch without a prepared form, which is missing. The
    /// stage is prepared again before another lane opens it.
    pub fn opened_unprepared(&mut self, lane: usize) {
        let running = self.lanes.get(lane).and_then(super::Lane::running);
        if let Some(stage) = running.map(|running| running.stage) {
            self.stages.set_readiness(stage, Readiness::Unprepared);
        }
    }

    /// Returns the resource that a work item waits for, or `None` if the item is unknown.
    pub fn awaited(&self, work: u64) -> Option<Awaited> {
        let known = self.stages.get(self.queue.get(work)?.stage)?;
        Some(match known.readiness {
            Readiness::Unprepared if known.lanes.is_empty() => Awaited::Preparation,
            Readiness::Preparing if known.lanes.is_empty() => Awaited::Prepared,
            _ => Awaited::Lane,
        })
    }

    /// Returns the preparations whose stages have no work items.
    pub(super) fn unwanted_preparations(&self) -> Vec<usize> {
        let slots = self.preparing.iter().enumerate();
        let busy = slots.filter_map(|(slot, preparing)| Some((slot, preparing.as_ref()?.stage)));
        let unwanted =
            busy.filter(|(_, stage)| self.stages.get(*stage).is_some_and(|known| known.works == 0));
        unwanted.map(|(slot, _)| slot).collect()
    }
}
