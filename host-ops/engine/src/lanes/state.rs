//! State of submissions, lanes and deadlines, independent of clocks and locks. The [`Device`] makes the
//! decisions; this state maps them to lanes and callers.

use super::job::{Job, Outcome, Reply};
use super::lane::{Lane, Running};
use super::order::{Order, Part, Task};
use super::quarantine::{Quarantine, Quarantined};
use super::run::{about, describe};
use super::waits::Waits;
use super::{Begun, LaneStats, LanesConfig, LanesPlace, OnBegin};
use crate::{EngineError, Interrupt, InterruptCause};
use frostline_batching::device::{Decision, Device, DeviceRules, LaneMemory, MemoryEstimate, Run, Work};
use frostline_batching::{Kind, Memory};
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Outcomes that are sent to callers after the lock is released.
pub(super) type Outcomes = Vec<(Reply, Outcome)>;

pub(super) struct State {
    pub(super) phase: Phase,
    /// Time until which the clock thread sleeps.
    pub(super) clock_wakes: Option<Instant>,
    pub(super) lanes: Vec<Lane>,
    pub(super) device: Device<Stage>,
    pub(super) entries: HashMap<u64, Entry>,
    pub(super) quarantine: Quarantine,
    pub(super) waits: Waits,
    on_begin: Option<OnBegin>,
    /// The ledger that bounds the lanes.
    pub(super) memory: Option<Memory>,
    /// True if `memory` belongs to a device, where sessions retain the memory of their batches.
    pub(super) on_device: bool,
    pub(super) budget_key: &'static str,
    /// Maximum time a submission waits for a lane.
    pub(super) queue_deadline: Duration,
    /// Maximum time an engine batch may keep other tenants waiting.
    hold_up: Duration,
    origin: Instant,
    next_id: u64,
    pub(super) counts: LaneStats,
}

/// Phase of the lanes, which only advances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    Draining,
    Ended,
}

/// A submission with a waiting caller.
pub(super) struct Entry {
    pub(super) job: Arc<Job>,
    pub(super) reply: Reply,
    /// Deadline for the start of the remaining rows.
    pub(super) until: Instant,
}

/// Result of [`State::decide`].
#[derive(Default)]
pub(super) struct Decided {
    pub(super) outcomes: Outcomes,
    /// True if a lane received a task.
    pub(super) assigned_task: bool,
    /// Time of the next decision, unless an event causes an earlier one.
    pub(super) next_decision: Option<Instant>,
    /// Bytes missing for the next work item.
    pub(super) lacking: u64,
}

/// Deadline of an engine batch, and the cause to report on expiry.
#[derive(Clone)]
pub(super) struct Deadline {
    pub(super) until: Instant,
    pub(super) late: InterruptCause,
}

impl State {
    pub(super) fn new(config: &LanesConfig, now: Instant) -> Self {
        let rules = DeviceRules {
            sessions_per_lane: config.sessions_per_lane,
            works: config.queue_jobs,
            bytes: config.queue_bytes,
            keeps: config.device_memory.is_some(),
            padded_rows: config.device.padded_rows(),
            ..DeviceRules::for_lanes(config.lanes)
        };
        let quarantine = match &config.place {
            LanesPlace::InProcess => Duration::ZERO,
            LanesPlace::Child(place) => place.quarantine,
        };
        Self {
            phase: Phase::Open,
            clock_wakes: None,
            lanes: (0..config.lanes).map(|_| Lane::default()).collect(),
            device: Device::new(rules),
            entries: HashMap::new(),
            quarantine: Quarantine::new(quarantine),
            waits: Waits::default(),
            on_begin: config.on_begin.clone(),
            memory: config.bounding_ledger().cloned(),
            on_device: config.device_memory.is_some(),
            budget_key: config.budget_key(),
            queue_deadline: config.queue_deadline,
            hold_up: config.hold_up,
            origin: now,
            next_id: 0,
            counts: LaneStats::default(),
        }
    }

    /// Queues a submission with a deadline for the start of the first rows. Returns the submission's id.
    ///
    /// # Errors
    /// Returns an error if the lanes are shutting down, the model or tenant is refused, or the queue is full.
    pub(super) fn push(
        &mut self,
        job: Job,
        reply: Reply,
        guess: MemoryEstimate,
        now: Instant,
        until: Instant,
    ) -> Result<u64, OpError> {
        if self.phase != Phase::Open {
            return Err(shutting_down());
        }
        let customer = &job.customer;
        if let Some(refused) = self.refused(now, &customer.tenant, &job.stage) {
            self.counts.jobs_failed += 1;
            return Err(refused);
        }
        let work = Work {
            id: self.next_id,
            tenant: Arc::clone(&customer.tenant),
            weight: customer.weight,
            terms: customer.terms.clone(),
            stage: job.stage.clone(),
            // [`Job::new`] refuses empty batches, so the fallback is never used.
            rows: NonZeroUsize::new(job.rows()).unwrap_or(NonZeroUsize::MIN),
            bytes: job.batch.byte_len(),
            guess,
        };
        let pushed = self.device.push(work);
        pushed.map_err(|full| OpError::from_host(OpErrorCode::TooLarge, full.to_string()))?;
        let (id, job) = (self.next_id, Arc::new(job));
        self.next_id += 1;
        self.entries.insert(id, Entry { job, reply, until });
        Ok(id)
    }

    /// Returns the reason if `stage` must not run for `tenant` at present.
    pub(super) fn refused(&mut self, now: Instant, tenant: &str, stage: &Stage) -> Option<OpError> {
        let case = self.quarantine.check(now, tenant, &stage.model);
        if let Some(case) = case {
            return Some(refusal(stage, &case));
        }
        let left = self.quarantine.pause(now, tenant)?;
        Some(OpError::from_host(
            OpErrorCode::RuntimeError,
            format!(
                "{}: your models crashed lanes or blocked other tenants, so this host refuses your batches for {} seconds; run the models with ONNX Runtime on your \
                 machine to find the layer or data that causes this",
                describe(stage),
                left.as_secs() + 1
            ),
        ))
    }

    /// Removes a submission and ends the engine batches that only contain its rows. Returns the channel to
    /// the caller.
    pub(super) fn cancel(&mut self, id: u64) -> Option<Reply> {
        let removed = self.device.remove(id);
        for lane in removed.into_iter().flat_map(|removed| removed.runs) {
            let running = self.lanes.get(lane).and_then(|lane| lane.running.as_ref());
            running.inspect(|running| running.order.interrupt.trigger(InterruptCause::Cancelled));
        }
        let entry = self.entries.remove(&id)?;
        self.counts.jobs_failed += 1;
        Some(entry.reply)
    }

    /// Starts all possible work.
    pub(super) fn decide(&mut self, now: Instant, deadline: &Deadline) -> Decided {
        let mut decided = Decided::default();
        loop {
            match self.device.next(self.time(now), self.room()) {
                Decision::Run(run) => {
                    decided.assigned_task = true;
                    self.start_run(run, now, deadline);
                }
                Decision::Close { lane, stages } => {
                    decided.assigned_task = true;
                    self.close(lane, stages);
                }
                Decision::Refuse { work, needs, most } => {
                    let key = self.budget_key;
                    let refused = self.fail(work, |job| never_fits(job, needs, most, key));
                    decided.outcomes.extend(refused);
                }
                Decision::Wait { until, lacking } => {
                    decided.next_decision = until.map(|until| self.origin + until);
                    decided.lacking = lacking;
                    return decided;
                }
            }
        }
    }

    fn close(&mut self, lane: usize, stages: Vec<Stage>) {
        self.counts.sessions_closed += stages.len() as u64;
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.task = Some(Task::Close(stages));
        }
    }

    fn start_run(&mut self, run: Run<Stage>, now: Instant, deadline: &Deadline) {
        self.note_waits(&run, now);
        let parts = run.parts.into_iter().filter_map(|part| {
            let job = Arc::clone(&self.entries.get(&part.work)?.job);
            let rows = part.rows.start.min(job.rows())..part.rows.end.min(job.rows());
            let id = part.work;
            Some(Part { id, job, rows })
        });
        let order = Arc::new(Order {
            parts: parts.collect(),
            stage: run.stage,
            rows: run.rows,
            close: run.close,
            bytes: run.bytes,
            interrupt: Interrupt::new(),
        });
        self.counts.sessions_closed += order.close.len() as u64;
        let Some(lane) = self.lanes.get_mut(run.lane) else {
            return;
        };
        lane.reserve(run.bytes);
        lane.task = Some(Task::Run(Arc::clone(&order)));
        lane.running = Some(Running {
            order,
            since: now,
            deadline: deadline.clone(),
            opened: None,
        });
    }

    fn note_waits(&mut self, run: &Run<Stage>, now: Instant) {
        for part in &run.parts {
            if let Some(entry) = self.entries.get(&part.work) {
                let (time, waited) = (self.time(now), self.waited(entry, now));
                self.waits.note(time, &entry.job.customer.tenant, waited);
                if let Some(OnBegin(told)) = &self.on_begin {
                    told(Begun {
                        extraction: &entry.job.customer.terms.extraction,
                        rows: part.rows.len(),
                        waited,
                    });
                }
            }
        }
    }

    /// Returns the waiting time of a submission, which restarts after each batch with rows of this
    /// submission.
    pub(super) fn waited(&self, entry: &Entry, now: Instant) -> Duration {
        let left = entry.until.saturating_duration_since(now);
        let late = now.saturating_duration_since(entry.until);
        self.queue_deadline.saturating_sub(left).saturating_add(late)
    }

    /// Removes and returns the next task of lane `index`.
    pub(super) fn take_task(&mut self, index: usize) -> Option<Task> {
        self.lanes.get_mut(index)?.task.take()
    }

    /// Closes idle sessions because other parts of the host need `bytes` of memory.
    pub(super) fn relieve(&mut self, bytes: u64) {
        for (lane, stages) in self.device.relieve(bytes) {
            self.close(lane, stages);
        }
    }

    /// Replaces the deadline for opening by `deadline`, because lane `index` now has the session for its
    /// batch.
    pub(super) fn opened(&mut self, index: usize, now: Instant, deadline: Deadline) {
        if let Some(running) = self.lanes.get_mut(index).and_then(|lane| lane.running.as_mut()) {
            running.deadline = deadline;
            running.opened = Some(now);
        }
    }

    /// Records that lane `index` is ready, with the process id, if any, and the held bytes.
    pub(super) fn started(&mut self, index: usize, process: Option<u32>, held: u64) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.process = process;
            lane.held = held;
        }
        self.device.started(index, held);
    }

    /// Records that lane `index` has a new process for the batch that it is about to start. Returns false if
    /// the batch cannot start.
    pub(super) fn replaced(&mut self, index: usize, process: u32, held: u64) -> bool {
        if let Some(lane) = self.lanes.get_mut(index) {
            (lane.process, lane.held) = (Some(process), held);
        }
        self.device.replaced(index, held)
    }

    /// Records that lane `index` closed sessions, and the bytes that it still holds if they are known.
    pub(super) fn closed(&mut self, index: usize, held: Option<u64>) {
        if let Some((lane, held)) = self.lanes.get_mut(index).zip(held) {
            lane.held = held;
        }
        self.device.closed(index, held);
    }

    /// Records that lane `index` released the memory that it reuses for the next batch.
    pub(super) fn rested(&mut self, index: usize, held: Option<u64>) {
        if let Some((lane, held)) = self.lanes.get_mut(index).zip(held) {
            lane.held = held;
            self.device.rested(index, held);
        }
    }

    /// Returns true if work is queued or running.
    pub(super) fn is_working(&self) -> bool {
        !self.entries.is_empty() || self.lanes.iter().any(|lane| lane.running.is_some())
    }

    /// Returns the earliest deadline of waiting submissions and uninterrupted engine batches.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let running = self.running_ids();
        let waiting = self.entries.iter().filter(|(id, _)| !running.contains(id));
        let late = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        let late = late.filter(|running| running.order.interrupt.cause().is_none());
        waiting
            .map(|(_, entry)| entry.until)
            .chain(late.map(|running| self.deadline(running).until))
            .min()
    }

    /// Gives up all overdue work. Returns the outcomes for the callers.
    ///
    /// If rows of several submissions are in an overdue engine batch, it is unknown which of them were slow.
    /// These submissions are retried separately.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Outcomes {
        let running = self.running_ids();
        let waited = self
            .entries
            .iter()
            .filter(|(id, entry)| entry.until <= now && !running.contains(id));
        let waited: Vec<u64> = waited.map(|(id, _)| *id).collect();
        let deadline = self.queue_deadline;
        let mut told: Outcomes = waited
            .into_iter()
            .filter_map(|id| self.fail(id, |job| waited_too_long(&job.stage, deadline)))
            .collect();
        let runs = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        let running = runs.filter(|running| running.order.interrupt.cause().is_none());
        let deadlines = running.map(|running| (Arc::clone(&running.order), self.deadline(running)));
        let late: Vec<_> = deadlines.filter(|(_, deadline)| deadline.until <= now).collect();
        for (order, Deadline { late, .. }) in late {
            order.interrupt.trigger(late.clone());
            if let (false, Some(part)) = (order.is_joined(), order.parts.first()) {
                if let InterruptCause::HeldUp { .. } = late {
                    self.quarantine.count_loss(now, &part.job.customer.tenant);
                }
                told.extend(self.fail(part.id, |job| about(&job.stage, &EngineError::from(late))));
            }
        }
        told
    }

    /// Returns the deadline of an engine batch. It is earlier if a tenant without rows on any lane is
    /// waiting.
    fn deadline(&self, running: &Running) -> Deadline {
        let of_its_own = |tenant: &str| {
            let mut parts = running.order.parts.iter();
            parts.any(|part| &*part.job.customer.tenant == tenant)
        };
        let runs = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        let parts = runs.flat_map(|running| &running.order.parts);
        let served: HashSet<&str> = parts.map(|part| &*part.job.customer.tenant).collect();
        let waiting = self.entries.values().filter(|entry| {
            let tenant = &*entry.job.customer.tenant;
            !served.contains(tenant) && !of_its_own(tenant)
        });
        let waiting = waiting.filter_map(|entry| entry.until.checked_sub(self.queue_deadline));
        let held_up = waiting.min().zip(running.opened).map(|(waits, opened)| Deadline {
            until: waits.max(opened) + self.hold_up,
            late: InterruptCause::HeldUp { limit: self.hold_up },
        });
        let earlier = held_up.filter(|held_up| held_up.until < running.deadline.until);
        earlier.unwrap_or_else(|| running.deadline.clone())
    }

    /// Ends all work. Returns the outcomes for callers whose submissions are not running.
    pub(super) fn end(&mut self) -> Outcomes {
        self.phase = Phase::Ended;
        let running = self.running_ids();
        let left = self.entries.keys().filter(|id| !running.contains(id));
        let left: Vec<u64> = left.copied().collect();
        let runs = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        runs.for_each(|running| running.order.interrupt.trigger(InterruptCause::Shutdown));
        left.into_iter()
            .filter_map(|id| self.fail(id, |_| shutting_down()))
            .collect()
    }

    /// Removes a submission and counts it as failed. `why` creates the error. Returns the outcome for the
    /// caller, or `None` if the submission no longer exists.
    pub(super) fn fail(&mut self, id: u64, why: impl FnOnce(&Job) -> OpError) -> Option<(Reply, Outcome)> {
        let job = Arc::clone(&self.entries.get(&id)?.job);
        Some((self.cancel(id)?, Err(why(&job))))
    }

    /// Returns the submissions with rows in an engine batch.
    pub(super) fn running_ids(&self) -> HashSet<u64> {
        self.lanes.iter().flat_map(Lane::ids).collect()
    }

    fn room(&self) -> LaneMemory {
        // Half of the maximum avoids overflows.
        let free = LaneMemory {
            free: u64::MAX / 2,
            limit: u64::MAX / 2,
        };
        self.memory.as_ref().map_or(free, |memory| {
            memory.read(|ledger| LaneMemory {
                free: ledger.room(Kind::Lane),
                limit: ledger.most(Kind::Lane),
            })
        })
    }

    pub(super) fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }
}

pub(super) fn never_fits(job: &Job, needs: u64, most: u64, key: &str) -> OpError {
    let (what, smaller) = match job.customer.terms.terms.fixed_batch {
        Some(rows) if rows > 1 => (format!("a fixed batch of {rows} rows"), "a smaller batch"),
        _ => ("a single row".to_owned(), "an earlier cut"),
    };
    OpError::too_large(format!(
        "{}: {what} needs {needs} bytes of memory, but this host has only {most} for its lanes; use {smaller}, or ask the \
         host's operator for a larger {key}",
        describe(&job.stage)
    ))
}

pub(super) fn refusal(stage: &Stage, case: &Quarantined) -> OpError {
    let minutes = case.left.as_secs().div_ceil(60);
    OpError::runtime(format!(
        "{}: this model crashed the engine {} times (the last time: {}) and is not run again for {minutes} minutes; run \
         it with ONNX Runtime on your own machine to find the layer or data that causes the crash",
        describe(stage),
        case.crashes,
        case.how
    ))
}

fn waited_too_long(stage: &Stage, limit: Duration) -> OpError {
    let stage = describe(stage);
    OpError::from_host(
        OpErrorCode::Timeout,
        format!("{stage}: no lane was free within {limit:?}; try again later"),
    )
}

pub(super) fn shutting_down() -> OpError {
    OpError::from_host(OpErrorCode::RuntimeError, InterruptCause::Shutdown.to_string())
}
