//! What waits for lanes, what they run, and what of it is late: without a clock, a lock or a wait inside.

use super::quarantine::Quarantine;
use super::run::{Reply, Submission, about, describe};
use super::{LaneStats, LanesConfig, LanesPlace};
use crate::{EngineError, Interrupt, InterruptCause};
use frostline_batching::{LaneQueue, QueueLimits};
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) quarantine: Quarantine,
    /// Until when the clock sleeps.
    pub(super) clock_wakes: Option<Instant>,
    queue: LaneQueue<Waiting>,
    lanes: Vec<Lane>,
    next_id: u64,
    counts: LaneStats,
}

/// From one to the next, never back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    Draining,
    Ended,
}

struct Waiting {
    submission: Submission,
    reply: Reply,
    until: Instant,
}

#[derive(Default)]
struct Lane {
    running: Option<Running>,
    busy: Duration,
    process: Option<u32>,
}

struct Running {
    /// Taken when the outcome was told, which the clock does without waiting for the lane.
    reply: Option<Reply>,
    tenant: Arc<str>,
    stage: Stage,
    interrupt: Interrupt,
    since: Instant,
    deadline: Deadline,
}

/// When a run is ended, and why then.
pub(super) struct Deadline {
    pub(super) until: Instant,
    pub(super) late: InterruptCause,
}

impl State {
    pub(super) fn new(config: &LanesConfig) -> Self {
        let limits = QueueLimits {
            jobs: config.queue_jobs,
            bytes: config.queue_bytes,
        };
        let quarantine = match &config.place {
            LanesPlace::InProcess => Duration::ZERO,
            LanesPlace::Child(place) => place.quarantine,
        };
        Self {
            phase: Phase::Open,
            quarantine: Quarantine::new(quarantine),
            clock_wakes: None,
            queue: LaneQueue::new(limits),
            lanes: (0..config.lanes).map(|_| Lane::default()).collect(),
            next_id: 0,
            counts: LaneStats::default(),
        }
    }

    /// Queues a submission that waits no longer than `until`; what it is known by.
    pub(super) fn push(
        &mut self,
        submission: Submission,
        reply: Reply,
        until: Instant,
    ) -> Result<u64, OpError> {
        if self.phase != Phase::Open {
            return Err(shutting_down());
        }
        let (id, tenant) = (self.next_id, Arc::clone(&submission.customer.tenant));
        let bytes = submission.run.batch.byte_len();
        let waiting = Waiting {
            submission,
            reply,
            until,
        };
        self.queue
            .push(&tenant, id, bytes, waiting)
            .map_err(|full| OpError::of_host(OpErrorCode::TooLarge, full.to_string()))?;
        self.next_id += 1;
        Ok(id)
    }

    /// Takes a submission out that waits.
    pub(super) fn remove(&mut self, id: u64) -> Option<Submission> {
        let waiting = self.queue.remove(id)?;
        self.counts.jobs_failed += 1;
        Some(waiting.submission)
    }

    /// What lane `index` is to run from `now` on.
    pub(super) fn begin(&mut self, index: usize, now: Instant, deadline: Deadline) -> Option<Submission> {
        let (_, waiting) = self.queue.pop()?;
        let Waiting {
            submission, reply, ..
        } = waiting;
        let running = Running {
            reply: Some(reply),
            tenant: Arc::clone(&submission.customer.tenant),
            stage: submission.run.stage.clone(),
            interrupt: submission.run.interrupt.clone(),
            since: now,
            deadline,
        };
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.running = Some(running);
        }
        Some(submission)
    }

    /// What lane `index` runs has another deadline from now on.
    pub(super) fn set_deadline(&mut self, index: usize, deadline: Deadline) {
        if let Some(running) = self.lanes.get_mut(index).and_then(|lane| lane.running.as_mut()) {
            running.deadline = deadline;
        }
    }

    /// Lane `index` works with this process from now on.
    pub(super) fn set_process(&mut self, index: usize, process: Option<u32>) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.process = process;
        }
    }

    /// A process was lost while it ran `submission`, and `how` it ended.
    pub(super) fn crashed(&mut self, submission: &Submission, how: &str, now: Instant) {
        self.counts.crashes += 1;
        let model = &submission.run.stage.model;
        self.quarantine.note(now, &submission.customer.tenant, model, how);
    }

    /// Lane `index` is done with so many `samples`, or failed; who waits for that, unless told already.
    pub(super) fn finish(&mut self, index: usize, samples: Option<usize>, now: Instant) -> Option<Reply> {
        match samples {
            Some(samples) => {
                self.counts.jobs_done += 1;
                self.counts.samples_done += samples as u64;
            }
            None => self.counts.jobs_failed += 1,
        }
        let lane = self.lanes.get_mut(index)?;
        let running = lane.running.take()?;
        let time = now.saturating_duration_since(running.since);
        lane.busy += time;
        self.queue.ran(&running.tenant, time);
        running.reply
    }

    pub(super) fn is_working(&self) -> bool {
        !self.queue.is_empty() || self.lanes.iter().any(|lane| lane.running.is_some())
    }

    /// What still has to be told in time: the deadline of everything that waits, or runs and was not given up.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.queue.iter().map(|waiting| waiting.until);
        let running = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        waiting
            .chain(running.filter(|r| r.reply.is_some()).map(|r| r.deadline.until))
            .min()
    }

    /// Gives up what is late; what its callers are told.
    pub(super) fn take_overdue(&mut self, now: Instant, config: &LanesConfig) -> Vec<(Reply, OpError)> {
        let waited = self.queue.remove_where(|waiting| waiting.until <= now);
        self.counts.jobs_failed += waited.len() as u64;
        let mut overdue: Vec<_> = waited
            .into_iter()
            .map(|waiting| {
                let error = waited_too_long(&waiting.submission.run.stage, config);
                (waiting.reply, error)
            })
            .collect();
        for running in self.lanes.iter_mut().filter_map(|lane| lane.running.as_mut()) {
            if running.deadline.until <= now
                && let Some(reply) = running.reply.take()
            {
                let cause = running.deadline.late.clone();
                running.interrupt.trigger(cause.clone());
                overdue.push((reply, about(&running.stage, &EngineError::from(cause))));
            }
        }
        overdue
    }

    /// Gives up all that there is; what the callers of what still waits are told.
    pub(super) fn end(&mut self) -> Vec<(Reply, OpError)> {
        self.phase = Phase::Ended;
        let left = self.queue.remove_where(|_| true);
        self.counts.jobs_failed += left.len() as u64;
        let running = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        running.for_each(|running| running.interrupt.trigger(InterruptCause::Shutdown));
        left.into_iter()
            .map(|waiting| (waiting.reply, shutting_down()))
            .collect()
    }

    pub(super) fn stats(&self, now: Instant) -> LaneStats {
        let since = |running: &Running| now.saturating_duration_since(running.since);
        let busy = |lane: &Lane| lane.busy + lane.running.as_ref().map_or(Duration::ZERO, since);
        LaneStats {
            queued: self.queue.len(),
            queued_bytes: self.queue.bytes(),
            running: self.lanes.iter().filter(|lane| lane.running.is_some()).count(),
            processes: self.lanes.iter().filter_map(|lane| lane.process).collect(),
            busy: self.lanes.iter().map(busy).collect(),
            ..self.counts.clone()
        }
    }
}

fn waited_too_long(stage: &Stage, config: &LanesConfig) -> OpError {
    let (stage, limit) = (describe(stage), config.queue_deadline);
    OpError::of_host(
        OpErrorCode::Timeout,
        format!("{stage}: no lane was free within {limit:?}; try again later"),
    )
}

fn shutting_down() -> OpError {
    OpError::of_host(OpErrorCode::RuntimeError, InterruptCause::Shutdown.to_string())
}
