//! Deadlines of submissions, engine batches and preparations.

use super::lane::{Deadline, Running, Stop};
use super::run::{about, describe};
use super::state::{LanesState, Outcomes, Submission};
use crate::{EngineError, InterruptCause};
use frostline_batching::device::Awaited;
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Time for an interrupted batch to stop while another tenant waits for a lane. It covers several layers of
/// common networks.
pub(super) const CONTENDED_GRACE: Duration = Duration::from_secs(1);

/// Measure against an engine batch that has not ended in time.
enum Measure {
    Stop(InterruptCause),
    /// End the process of a batch that was stopped.
    GiveUp {
        /// True if another tenant waits.
        contended: bool,
    },
}

impl LanesState {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let running = self.running_ids();
        let waiting = self.entries.iter().filter(|(id, _)| !running.contains(id));
        let lanes = 0..self.lanes.len();
        let slots = 0..self.preparations.slots();
        waiting
            .map(|(_, entry)| entry.until)
            .chain(lanes.filter_map(|lane| Some(self.next_measure(lane)?.0)))
            .chain(slots.filter_map(|slot| Some(self.preparation_deadline(slot)?.until)))
            .min()
    }

    /// Gives up all overdue work. Returns the outcomes for the callers.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Outcomes {
        let running = self.running_ids();
        let waited = self
            .entries
            .iter()
            .filter(|(id, entry)| entry.until <= now && !running.contains(id));
        let waited: Vec<u64> = waited.map(|(id, _)| *id).collect();
        let deadline = self.config.queue_deadline;
        let mut told: Outcomes = waited
            .into_iter()
            .filter_map(|id| self.fail(id, now, |job| waited_too_long(&job.stage, deadline)))
            .collect();
        for lane in 0..self.lanes.len() {
            match self.next_measure(lane).filter(|(until, _)| *until <= now) {
                Some((_, Measure::Stop(cause))) => told.extend(self.stop_run(lane, &cause, now)),
                Some((_, Measure::GiveUp { contended })) => self.give_up(lane, contended),
                None => {}
            }
        }
        for slot in 0..self.preparations.slots() {
            let overdue = self.preparation_deadline(slot);
            if let Some(overdue) = overdue.filter(|overdue| overdue.until <= now) {
                self.preparations.stop(slot, overdue.late);
            }
        }
        told
    }

    /// Ends the engine batch of lane `index` because of `cause`. Returns the outcome for the caller. If rows
    /// of several submissions are in the batch, it is unknown which of them are the reason, so they are
    /// retried separately. When the batch has ended, [`LanesState::finish`] determines the consequences for the
    /// tenant.
    pub(super) fn stop_run(&mut self, index: usize, cause: &InterruptCause, now: Instant) -> Outcomes {
        self.interrupt(index, cause.clone(), now);
        let running = self.lanes.get(index).and_then(|lane| lane.running.as_ref());
        let alone = running.filter(|running| !running.order.is_joined());
        let id = alone.and_then(|running| Some(running.order.parts.first()?.id));
        let told = id.and_then(|id| {
            self.fail(id, now, |job| {
                about(&job.stage, &EngineError::from(cause.clone()))
            })
        });
        told.into_iter().collect()
    }

    /// Asks the engine batch of lane `index` to stop, unless it was asked before.
    pub(super) fn interrupt(&mut self, index: usize, cause: InterruptCause, now: Instant) {
        let running = self.running_mut(index);
        if let Some(running) = running.filter(|running| running.stop.is_none()) {
            running.order.interrupt.trigger(cause.clone());
            running.stop = Some(Stop {
                cause,
                at: now,
                given_up: false,
                contended: false,
            });
        }
    }

    /// Ends the process of a batch that was asked to stop.
    pub(super) fn give_up(&mut self, index: usize, contended: bool) {
        if let Some(running) = self.running_mut(index)
            && let Some(stop) = &mut running.stop
        {
            stop.given_up = true;
            stop.contended = contended;
            running.order.interrupt.give_up();
        }
    }

    /// Returns the next measure against the batch of lane `index`, and its time.
    fn next_measure(&self, index: usize) -> Option<(Instant, Measure)> {
        let running = self.lanes.get(index)?.running.as_ref()?;
        let Some(stop) = &running.stop else {
            let Deadline { until, late } = self.run_deadline(running);
            return Some((until, Measure::Stop(late)));
        };
        if stop.given_up {
            return None;
        }
        let tenant = running.order.tenant();
        let others = self.waiting_for(Awaited::Lane).filter(|entry| {
            let other = &entry.job.customer.tenant;
            tenant.as_ref() != Some(other)
        });
        let grace = self.grace.min(CONTENDED_GRACE);
        let contended = self.earliest(others).map(|since| since.max(stop.at) + grace);
        let alone = stop.at + self.grace;
        Some(match contended.filter(|contended| *contended <= alone) {
            Some(until) => (until, Measure::GiveUp { contended: true }),
            None => (alone, Measure::GiveUp { contended: false }),
        })
    }

    /// Returns the deadline of an engine batch, which includes the opening of the session. It is earlier if a
    /// tenant without rows on any lane is waiting.
    fn run_deadline(&self, running: &Running) -> Deadline {
        let runs = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        let parts = runs.flat_map(|running| &running.order.parts);
        let served: HashSet<&str> = parts.map(|part| &*part.job.customer.tenant).collect();
        let waiting = self.waiting_for(Awaited::Lane);
        let unserved = waiting.filter(|entry| !served.contains(&*entry.job.customer.tenant));
        self.at_most(&running.deadline, running.since, self.earliest(unserved))
    }

    /// Returns the deadline of a preparation. It is earlier if a tenant without a preparation needs one.
    fn preparation_deadline(&self, slot: usize) -> Option<Deadline> {
        let preparing = self.preparations.get(slot)?;
        if preparing.task.interrupt.is_given_up() {
            return None;
        }
        let busy = self.preparations.iter();
        let served: HashSet<&str> = busy.map(|preparing| &*preparing.task.tenant).collect();
        let waiting = self.waiting_for(Awaited::Preparation);
        let unserved = waiting.filter(|entry| !served.contains(&*entry.job.customer.tenant));
        let deadline = self.open_deadline(preparing.since);
        Some(self.at_most(&deadline, preparing.since, self.earliest(unserved)))
    }

    /// Returns `deadline`, or the end of the time for which work since `since` may keep other tenants waiting
    /// that wait since `waiting`, if this is earlier.
    fn at_most(&self, deadline: &Deadline, since: Instant, waiting: Option<Instant>) -> Deadline {
        let limit = self.config.hold_up;
        let held_up = waiting.map(|waiting| Deadline {
            until: waiting.max(since) + limit,
            late: InterruptCause::HeldUp { limit },
        });
        let earlier = held_up.filter(|held_up| held_up.until < deadline.until);
        earlier.unwrap_or_else(|| deadline.clone())
    }

    /// Returns the submissions without rows on a lane that wait for `awaited`.
    fn waiting_for(&self, awaited: Awaited) -> impl Iterator<Item = &Submission> {
        let running = self.running_ids();
        let waiting = self.entries.iter().filter(move |(id, _)| !running.contains(id));
        let waiting = waiting.filter(move |(id, _)| self.device.awaited(**id) == Some(awaited));
        waiting.map(|(_, entry)| entry)
    }

    /// Returns the time since which the first of these submissions waits.
    fn earliest<'a>(&self, waiting: impl Iterator<Item = &'a Submission>) -> Option<Instant> {
        let since = waiting.filter_map(|entry| entry.until.checked_sub(self.config.queue_deadline));
        since.min()
    }
}

fn waited_too_long(stage: &Stage, limit: Duration) -> OpError {
    let stage = describe(stage);
    OpError::from_host(
        OpErrorCode::Timeout,
        format!("cannot run {stage}: all lanes were busy for {limit:?}; retry later"),
    )
}
