//! State of submissions, lanes and deadlines, independent of clocks and locks. The [`Device`] makes the
//! decisions; this state maps them to lanes and callers.

use super::job::{Outcome, Reply, RowJob};
use super::lane::{Deadline, Lane, Running};
use super::order::{Order, Part, Task};
use super::preparing::Preparations;
use super::quarantine::{Quarantine, Quarantined};
use super::run::describe;
use super::waits::Waits;
use super::{Begun, LaneStats, LanesConfig, LanesPlace};
use crate::{Interrupt, InterruptCause};
use frostline_batching::device::{Decision, Device, DeviceRules, LaneMemory, MemoryEstimate, Run, Work};
use frostline_batching::{Kind, Memory};
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Outcomes that are sent to callers after the lock is released.
pub(super) type Outcomes = Vec<(Reply, Outcome)>;

pub(super) struct LanesState {
    pub(super) phase: Phase,
    /// Time until which the clock thread sleeps.
    pub(super) clock_wakes: Option<Instant>,
    pub(super) lanes: Vec<Lane>,
    pub(super) device: Device<Stage>,
    pub(super) entries: HashMap<u64, Submission>,
    pub(super) quarantine: Quarantine,
    pub(super) waits: Waits,
    pub(super) config: LanesConfig,
    /// The ledger that bounds the lanes.
    pub(super) memory: Option<Memory>,
    /// Time for an interrupted batch to stop if no other tenant waits.
    pub(super) grace: Duration,
    pub(super) preparations: Preparations,
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
pub(super) struct Submission {
    pub(super) job: Arc<RowJob>,
    pub(super) reply: Reply,
    /// Deadline for the start of the remaining rows.
    pub(super) until: Instant,
}

/// Result of [`LanesState::decide`].
#[derive(Default)]
pub(super) struct Decided {
    pub(super) outcomes: Outcomes,
    pub(super) assigned_task: bool,
    /// Time of the next decision, unless an event causes an earlier one.
    pub(super) next_decision: Option<Instant>,
    /// Bytes missing for the next work item.
    pub(super) lacking: u64,
}

impl LanesState {
    /// Creates the state for lanes with up to `preparations` stages in preparation.
    pub(super) fn new(config: &LanesConfig, preparations: usize, now: Instant) -> Self {
        let rules = DeviceRules {
            sessions_per_lane: config.sessions_per_lane,
            works: config.queue_jobs,
            bytes: config.queue_bytes,
            keeps: config.device_memory.is_some(),
            padded_rows: config.device.padded_rows(),
            preparations,
            ..DeviceRules::for_lanes(config.lanes)
        };
        let child = match &config.place {
            LanesPlace::InProcess => None,
            LanesPlace::Child(place) => Some(place),
        };
        Self {
            phase: Phase::Open,
            clock_wakes: None,
            lanes: (0..config.lanes).map(|_| Lane::default()).collect(),
            device: Device::new(rules),
            entries: HashMap::new(),
            quarantine: Quarantine::new(child.map_or(Duration::ZERO, |place| place.quarantine)),
            waits: Waits::default(),
            config: config.clone(),
            memory: config.bounding_ledger().cloned(),
            grace: child.map_or(Duration::ZERO, |place| place.grace),
            preparations: Preparations::new(preparations),
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
        job: RowJob,
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
            // [`RowJob::new`] refuses empty batches, so the fallback is never used.
            rows: NonZeroUsize::new(job.rows()).unwrap_or(NonZeroUsize::MIN),
            bytes: job.batch.byte_len(),
            guess,
        };
        let pushed = self.device.push(work);
        pushed.map_err(|full| OpError::from_host(OpErrorCode::TooLarge, full.to_string()))?;
        let id = self.next_id;
        let job = Arc::new(job);
        self.next_id += 1;
        self.entries.insert(id, Submission { job, reply, until });
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

    /// Removes a submission, and ends the engine batches that only contain its rows and the preparation that
    /// only this submission needs. Returns the channel to the caller.
    pub(super) fn cancel(&mut self, id: u64, now: Instant) -> Option<Reply> {
        if let Some(removed) = self.device.remove(id) {
            for lane in removed.runs {
                self.interrupt(lane, InterruptCause::Cancelled, now);
            }
            for slot in removed.preparations {
                self.preparations.stop(slot, InterruptCause::Cancelled);
            }
        }
        let entry = self.entries.remove(&id)?;
        self.counts.jobs_failed += 1;
        Some(entry.reply)
    }

    /// Starts all possible work.
    pub(super) fn decide(&mut self, now: Instant) -> Decided {
        let mut decided = Decided::default();
        loop {
            match self.device.next(self.time(now), self.room()) {
                Decision::Run(run) => {
                    decided.assigned_task = true;
                    self.start_run(run, now);
                }
                Decision::Prepare { slot, stage, tenant } => {
                    decided.assigned_task = true;
                    self.preparations.start(slot, stage, tenant, now);
                }
                Decision::Close { lane, stages } => {
                    decided.assigned_task = true;
                    self.close(lane, stages);
                }
                Decision::Refuse { work, needs, most } => {
                    let key = self.config.budget_key();
                    let refused = self.fail(work, now, |job| never_fits(job, needs, most, key));
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

    fn start_run(&mut self, run: Run<Stage>, now: Instant) {
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
        let deadline = self.open_deadline(now);
        let Some(lane) = self.lanes.get_mut(run.lane) else {
            return;
        };
        lane.reserve(run.bytes);
        lane.task = Some(Task::Run(Arc::clone(&order)));
        lane.running = Some(Running {
            order,
            since: now,
            deadline,
            stop: None,
        });
    }

    fn note_waits(&mut self, run: &Run<Stage>, now: Instant) {
        for part in &run.parts {
            if let Some(entry) = self.entries.get(&part.work) {
                let time = self.time(now);
                let waited = self.waited(entry, now);
                self.waits.note(time, &entry.job.customer.tenant, waited);
                if let Some(told) = &self.config.on_begin {
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
    pub(super) fn waited(&self, entry: &Submission, now: Instant) -> Duration {
        let left = entry.until.saturating_duration_since(now);
        let late = now.saturating_duration_since(entry.until);
        self.config
            .queue_deadline
            .saturating_sub(left)
            .saturating_add(late)
    }

    /// Returns the deadline for work since `since` that opens a session or prepares a stage.
    pub(super) fn open_deadline(&self, since: Instant) -> Deadline {
        let limit = self.config.open_deadline;
        Deadline {
            until: since + limit,
            late: InterruptCause::OpenDeadline { limit },
        }
    }

    /// Closes idle sessions because other parts of the host need `bytes` of memory.
    pub(super) fn relieve(&mut self, bytes: u64) {
        for (lane, stages) in self.device.relieve(bytes) {
            self.close(lane, stages);
        }
    }

    /// Closes the idle sessions of models for which `keep` returns false.
    pub(super) fn retain_models(&mut self, keep: impl Fn(&str) -> bool) {
        for (lane, stages) in self.device.retain(|stage| keep(&stage.model)) {
            self.close(lane, stages);
        }
    }

    pub(super) fn running_mut(&mut self, index: usize) -> Option<&mut Running> {
        self.lanes.get_mut(index)?.running.as_mut()
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

    /// Records that lane `index` released memory and the bytes that it still holds, if they are known. The
    /// lane either `closed` sessions or rested.
    pub(super) fn gave_back(&mut self, index: usize, held: Option<u64>, closed: bool) {
        if let Some((lane, held)) = self.lanes.get_mut(index).zip(held) {
            lane.held = held;
        }
        match held {
            _ if closed => self.device.closed(index, held),
            Some(held) => self.device.rested(index, held),
            None => {}
        }
    }

    /// Returns true if work is queued or running.
    pub(super) fn is_working(&self) -> bool {
        let runs = self.lanes.iter().any(|lane| lane.running.is_some());
        !self.entries.is_empty() || runs || self.preparations.iter().next().is_some()
    }

    /// Returns true if no more tasks or preparations will follow.
    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => !self.is_working(),
            Phase::Ended => true,
        }
    }

    /// Ends all work. Returns the outcomes for callers whose submissions are not running.
    pub(super) fn end(&mut self, now: Instant) -> Outcomes {
        self.phase = Phase::Ended;
        let running = self.running_ids();
        let left = self.entries.keys().filter(|id| !running.contains(id));
        let left: Vec<u64> = left.copied().collect();
        for lane in 0..self.lanes.len() {
            self.interrupt(lane, InterruptCause::Shutdown, now);
            // The sessions are not needed any longer.
            self.give_up(lane, false);
        }
        for slot in 0..self.preparations.slots() {
            self.preparations.stop(slot, InterruptCause::Shutdown);
        }
        left.into_iter()
            .filter_map(|id| self.fail(id, now, |_| shutting_down()))
            .collect()
    }

    /// Removes a submission and counts it as failed. `why` creates the error. Returns the outcome for the
    /// caller, or `None` if the submission no longer exists.
    pub(super) fn fail(
        &mut self,
        id: u64,
        now: Instant,
        why: impl FnOnce(&RowJob) -> OpError,
    ) -> Option<(Reply, Outcome)> {
        let job = Arc::clone(&self.entries.get(&id)?.job);
        Some((self.cancel(id, now)?, Err(why(&job))))
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

pub(super) fn never_fits(job: &RowJob, needs: u64, most: u64, key: &str) -> OpError {
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

pub(super) fn shutting_down() -> OpError {
    OpError::from_host(OpErrorCode::RuntimeError, InterruptCause::Shutdown.to_string())
}
