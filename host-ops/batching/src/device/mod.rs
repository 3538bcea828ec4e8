//! Selects which rows a lane executes next, the lane and the size of the engine batch, without clocks, locks
//! or waits. `docs/device.md` documents the rules.
//!
//! The owner reports events and calls [`Device::next`] after each one until the result is [`Decision::Wait`].
//! Times are relative to a fixed start.
//!
//! | event | call |
//! |---|---|
//! | a lane's process has started | [`Device::started`] |
//! | a work item arrives, is cancelled | [`Device::push`], [`Device::remove`] |
//! | the preparation of a stage has ended, for any reason | [`Device::prepared`] |
//! | a cold batch has opened the session | [`Device::opened`] |
//! | a batch has ended, for any reason | [`Device::ended`], which returns the outcome of the rows |
//! | sessions were closed | [`Device::closed`] |
//! | an idle lane released memory | [`Device::rested`] |

mod choose;
mod decision;
mod figures;
mod in_flight;
mod lane;
mod needs;
mod own;
mod place;
mod preparing;
mod queue;
mod rate;
mod recent;
mod settle;
mod short;
mod stages;
#[cfg(test)]
mod tests;
mod work;

pub use decision::{Awaited, Decision, Part, PartOutcome, Run, Verdict};
pub use figures::Predictions;
pub use own::OwnRate;
pub use work::{BatchEnd, DeviceRules, LaneMemory, MemoryEstimate, MemoryUsage, QueueFull, TIME_SLICE, Work};

use frostline_tensor::ExecutionTerms;
use in_flight::Preparing;
use lane::{Lane, LaneActivity};
use own::OwnRates;
use queue::{Entry, Queue};
use recent::Activity;
use stages::{StageId, Stages};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Device scheduler. Tracks lanes, sessions, memory and waiting work items. `S` identifies a stage.
#[derive(Debug)]
pub struct Device<S> {
    rules: DeviceRules,
    queue: Queue,
    stages: Stages<S>,
    lanes: Vec<Lane>,
    predictions: Predictions,
    /// Device time per tenant; the number of tenants is limited.
    device_time: BTreeMap<Arc<str>, Duration>,
    /// Preparations in progress; their number is limited by the rules.
    preparing: Vec<Option<Preparing>>,
    /// Recently active tenants.
    active: BTreeMap<Arc<str>, Activity>,
    own_rates: OwnRates<S>,
}

/// Result of [`Device::remove`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Lanes whose batches only contain removed work items.
    pub runs: Vec<usize>,
    /// Preparations that no work item needs any longer.
    pub preparations: Vec<usize>,
}

/// Returns the line of a work item. Items of the same job and priority share a line and execute one after
/// another. Executed side by side, they would all finish at the same time: the link would be idle before, and
/// the lanes would be idle afterwards.
fn line_of(terms: &ExecutionTerms) -> Arc<str> {
    match terms.terms.priority {
        0 => Arc::clone(&terms.job),
        priority => format!("{priority} {}", terms.job).into(),
    }
}

impl<S: Clone + Eq + Hash> Device<S> {
    /// Creates a scheduler with lanes without processes and no measurements.
    pub fn new(rules: DeviceRules) -> Self {
        Self {
            rules,
            queue: Queue::default(),
            stages: Stages::new(rules.preparations > 0),
            lanes: (0..rules.lanes).map(|_| Lane::default()).collect(),
            predictions: Predictions::default(),
            device_time: BTreeMap::new(),
            preparing: (0..rules.preparations).map(|_| None).collect(),
            active: BTreeMap::new(),
            own_rates: OwnRates::new(),
        }
    }

    /// Adds a work item.
    ///
    /// # Errors
    /// Returns [`QueueFull`] if the queue has no room for the item.
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

    /// Removes a work item that waits or executes. Returns `None` if the item is unknown. Rows in flight end
    /// as [`PartOutcome::Dropped`].
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
            preparations: self.unwanted_preparations(),
        })
    }

    /// Records a new process of a lane. The process has no sessions and holds `held` bytes.
    pub fn started(&mut self, lane: usize, held: u64) {
        self.lose_sessions(lane);
        if let Some(lane) = self.lanes.get_mut(lane) {
            *lane = Lane {
                doing: LaneActivity::Idle,
                held,
                empty: held,
                ..Lane::default()
            };
        }
    }

    /// Records a new process of a lane for the batch about to start. The process has no sessions and holds
    /// `held` bytes. Returns false if the batch cannot start because it relied on an open session; the rows
    /// must then be scheduled again.
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
        let Some((open, LaneActivity::Running(running))) = own.map(|open| (open, &mut of.doing)) else {
            return false;
        };
        running.before = held;
        of.sessions.push(open);
        if let Some(known) = self.stages.get_mut(open.stage) {
            known.lanes.push(lane);
        }
        true
    }

    /// Records the bytes that an idle lane holds.
    fn holds(&mut self, lane: usize, held: u64) {
        if let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.running().is_none()) {
            lane.held = held;
            if lane.sessions.is_empty() {
                lane.empty = held;
            }
        }
    }

    /// Records the bytes that an idle lane holds after it released all memory retained for later batches. The
    /// bytes in excess of the sessions become the size of the empty process.
    pub fn rested(&mut self, lane: usize, held: u64) {
        self.holds(lane, held);
        if let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.running().is_none()) {
            let sessions: u64 = lane.sessions.iter().map(|open| open.bytes).sum();
            lane.empty = held.saturating_sub(sessions);
        }
    }

    /// Records that a lane closed sessions, and the bytes that the lane still holds, if known.
    pub fn closed(&mut self, lane: usize, held: Option<u64>) {
        if let Some(closing) = self.lanes.get_mut(lane)
            && matches!(closing.doing, LaneActivity::Closing(_))
        {
            closing.doing = LaneActivity::Idle;
        }
        if let Some(held) = held {
            self.holds(lane, held);
        }
    }

    /// Removes a work item from the queue.
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
