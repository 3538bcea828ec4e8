//! What waits for lanes and what they run, and what of it is late.

use super::execute::describe;
use super::shared::{Job, Reply};
use super::{LaneStats, LanesConfig};
use crate::{Interrupt, InterruptCause};
use frostline_batching::LaneQueue;
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct State {
    pub(super) queue: LaneQueue<Waiting>,
    pub(super) lanes: Vec<Lane>,
    pub(super) phase: Phase,
    pub(super) next_id: u64,
    pub(super) clock_wakes: Option<Instant>,
    pub(super) counts: LaneStats,
}

/// From one to the next, never back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    Draining,
    Ended,
}

pub(super) struct Waiting {
    pub(super) job: Job,
    pub(super) reply: Reply,
    pub(super) until: Instant,
}

#[derive(Default)]
pub(super) struct Lane {
    pub(super) running: Option<Running>,
    pub(super) busy: Duration,
    pub(super) process: Option<u32>,
}

pub(super) struct Running {
    /// Taken when the outcome was told, which the clock does without waiting for the lane.
    pub(super) reply: Option<Reply>,
    pub(super) tenant: Arc<str>,
    pub(super) stage: Stage,
    pub(super) interrupt: Interrupt,
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// Why it is ended at `until`.
    pub(super) late: InterruptCause,
}

impl State {
    pub(super) fn is_working(&self) -> bool {
        !self.queue.is_empty() || self.lanes.iter().any(|lane| lane.running.is_some())
    }

    /// What still has to be told in time: the deadline of everything that waits, or runs and was not given up.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.queue.iter().map(|waiting| waiting.until);
        let running = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        waiting
            .chain(running.filter(|r| r.reply.is_some()).map(|r| r.until))
            .min()
    }

    pub(super) fn take_overdue(&mut self, now: Instant, config: &LanesConfig) -> Vec<(Reply, OpError)> {
        let waited = self.queue.remove_where(|waiting| waiting.until <= now);
        self.counts.jobs_failed += waited.len() as u64;
        let mut overdue: Vec<_> = waited
            .into_iter()
            .map(|waiting| {
                let error = waited_too_long(&waiting.job.stage, config);
                (waiting.reply, error)
            })
            .collect();
        for running in self.lanes.iter_mut().filter_map(|lane| lane.running.as_mut()) {
            if running.until <= now
                && let Some(reply) = running.reply.take()
            {
                running.interrupt.trigger(running.late.clone());
                overdue.push((reply, took_too_long(running)));
            }
        }
        overdue
    }
}

fn waited_too_long(stage: &Stage, config: &LanesConfig) -> OpError {
    let (stage, limit) = (describe(stage), config.queue_deadline);
    OpError::new(
        OpErrorCode::Timeout,
        format!("{stage}: no lane was free within {limit:?}; try again later"),
    )
}

fn took_too_long(running: &Running) -> OpError {
    let text = format!("{}: {}", describe(&running.stage), running.late);
    OpError::new(OpErrorCode::Timeout, text)
}
