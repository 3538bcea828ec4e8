//! Which rows of whose work run next, on which lane, in how large a batch: decided without a clock, a lock or a wait.
//! `docs/device.md` says by which rules.
//!
//! Its owner tells it what happens, with the time since some start, and asks [`Device::next`] after each event until it says to wait:
//!
//! | event | call |
//! |---|---|
//! | a lane's process is there | [`Device::started`] |
//! | work comes, is given up | [`Device::push`], [`Device::remove`] |
//! | a cold run has its session | [`Device::opened`] |
//! | a run is over, however | [`Device::ended`], which says what became of its rows |
//! | sessions were closed | [`Device::closed`] |
//! | an idle lane gave memory back | [`Device::rested`] |

mod choose;
mod decision;
mod figures;
mod lane;
mod needs;
mod place;
mod queue;
mod rate;
mod recent;
mod settle;
mod shares;
mod stages;
#[cfg(test)]
mod tests;
mod work;

pub use decision::{Decision, Part, PartOutcome, Run, StageFigures, Verdict};
pub use figures::{Error95, Predictions};
pub use work::{DeviceRules, End, MemoryEstimate, QUANTUM, QueueFull, Room, Taken, Work};

use frostline_tensor::RunTerms;
use lane::{Doing, Lane};
use queue::{Entry, Queue};
use stages::{StageId, Stages};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// The lanes of a device, what they hold, and what is to be done. `S` names a stage.
#[derive(Debug)]
pub struct Device<S> {
    rules: DeviceRules,
    queue: Queue,
    stages: Stages<S>,
    lanes: Vec<Lane>,
    predictions: Predictions,
    /// Device time of tenants, of those that ran last.
    used: BTreeMap<Arc<str>, Duration>,
}

/// What became of a work that is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Lanes whose runs nobody waits for any more.
    pub runs: Vec<usize>,
}

/// Where a work stands among its tenant's: those of one job and priority run one after another. Side by side they would all end at the same
/// time: until then the link has nothing to carry, and after it the lanes have nothing to run.
fn line_of(terms: &RunTerms) -> Arc<str> {
    match terms.terms.priority {
        0 => Arc::clone(&terms.job),
        priority => format!("{priority} {}", terms.job).into(),
    }
}

impl<S: Clone + Eq + Hash> Device<S> {
    /// No lane has a process yet, and nothing is known of any stage.
    pub fn new(rules: DeviceRules) -> Self {
        Self {
            rules,
            queue: Queue::default(),
            stages: Stages::new(),
            lanes: (0..rules.lanes).map(|_| Lane::default()).collect(),
            predictions: Predictions::default(),
            used: BTreeMap::new(),
        }
    }

    /// A work comes.
    ///
    /// # Errors
    /// [`QueueFull`], and it is not taken.
    pub fn push(&mut self, work: Work<S>) -> Result<(), QueueFull> {
        self.queue.check(&work.tenant, work.bytes, &self.rules)?;
        let stage = self.stages.enter(&work.stage, work.guess);
        let rows = work.rows.get();
        let entry = Entry {
            tenant: work.tenant,
            weight: work.weight,
            line: line_of(&work.terms),
            priority: work.terms.terms.priority,
            fixed: work.terms.terms.fixed_batch.map(|rows| rows.max(1)),
            stage,
            bytes: work.bytes,
            left: std::iter::once(0..rows).collect(),
            running: 0,
            apart: false,
            lost: 0,
            killed: 0,
            aborted: false,
            passed: None,
        };
        self.queue.push(work.id, entry);
        self.wait(stage, rows);
        Ok(())
    }

    /// A work is given up, whether it waits or runs; `None` when it is not here. What runs of it ends as [`PartOutcome::Dropped`].
    pub fn remove(&mut self, id: u64) -> Option<Removed> {
        self.forget(id)?;
        let lanes = self.lanes.iter().enumerate();
        let of_it = lanes.filter_map(|(index, lane)| Some((index, lane.running()?)));
        let of_it = of_it.filter(|(_, running)| running.parts.iter().any(|part| part.work == id));
        let nobody = of_it.filter(|(_, running)| {
            let mut works = running.parts.iter().map(|part| part.work);
            works.all(|work| self.queue.get(work).is_none())
        });
        Some(Removed {
            runs: nobody.map(|(index, _)| index).collect(),
        })
    }

    /// A lane has a process, without sessions, that holds so many bytes.
    pub fn started(&mut self, lane: usize, held: u64) {
        self.lose_sessions(lane);
        if let Some(lane) = self.lanes.get_mut(lane) {
            *lane = Lane {
                doing: Doing::Nothing,
                held,
                empty: held,
                sessions: Vec::new(),
            };
        }
    }

    /// A lane has another process for the run that it is about to begin, without sessions, that holds so many bytes. Whether the run can
    /// begin: one that counted on a session is to be decided anew.
    pub fn replaced(&mut self, lane: usize, held: u64) -> bool {
        let own = self.lanes.get(lane).and_then(|of| {
            let running = of.running()?;
            of.session(running.stage).copied().filter(|_| running.cold)
        });
        self.lose_sessions(lane);
        let Some(of) = self.lanes.get_mut(lane) else {
            return false;
        };
        (of.held, of.empty) = (held, held);
        let Some((open, Doing::Running(running))) = own.map(|open| (open, &mut of.doing)) else {
            return false;
        };
        running.before = held;
        of.sessions.push(open);
        if let Some(known) = self.stages.get_mut(open.stage) {
            known.lanes.push(lane);
        }
        true
    }

    /// An idle lane holds so many bytes now.
    fn holds(&mut self, lane: usize, held: u64) {
        if let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.running().is_none()) {
            lane.held = held;
            if lane.sessions.is_empty() {
                lane.empty = held;
            }
        }
    }

    /// An idle lane keeps nothing for its next run, and holds so many bytes now: what its sessions do not account for never comes back.
    pub fn rested(&mut self, lane: usize, held: u64) {
        self.holds(lane, held);
        if let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.running().is_none()) {
            let sessions: u64 = lane.sessions.iter().map(|open| open.bytes).sum();
            lane.empty = held.saturating_sub(sessions);
        }
    }

    /// A lane has closed the sessions that it was to close, and holds so many bytes now, if that can be seen.
    pub fn closed(&mut self, lane: usize, held: Option<u64>) {
        if let Some(closing) = self.lanes.get_mut(lane)
            && matches!(closing.doing, Doing::Closing(_))
        {
            closing.doing = Doing::Nothing;
        }
        if let Some(held) = held {
            self.holds(lane, held);
        }
    }

    /// A work is not known here any more.
    fn forget(&mut self, id: u64) -> Option<Entry> {
        let (stage, rows) = self.queue.get(id).map(|entry| (entry.stage, entry.rows_left()))?;
        self.unwait(stage, rows);
        self.stages.leave(stage);
        self.queue.remove(id)
    }

    fn wait(&mut self, stage: StageId, rows: usize) {
        if let Some(known) = self.stages.get_mut(stage) {
            known.waiting += rows;
        }
    }

    fn unwait(&mut self, stage: StageId, rows: usize) {
        if let Some(known) = self.stages.get_mut(stage) {
            known.waiting = known.waiting.saturating_sub(rows);
        }
    }

    fn lose_sessions(&mut self, lane: usize) {
        let Some(lost) = self.lanes.get_mut(lane) else {
            return;
        };
        for open in std::mem::take(&mut lost.sessions) {
            if let Some(known) = self.stages.get_mut(open.stage) {
                known.lanes.retain(|other| *other != lane);
            }
        }
    }

    fn close_session(&mut self, lane: usize, stage: StageId) {
        if let Some(closing) = self.lanes.get_mut(lane)
            && let Some(at) = closing.sessions.iter().position(|open| open.stage == stage)
        {
            let open = closing.sessions.remove(at);
            closing.held = closing.held.saturating_sub(open.bytes).max(closing.empty);
            if let Some(known) = self.stages.get_mut(stage) {
                known.lanes.retain(|other| *other != lane);
            }
        }
    }
}
