//! What was submitted, what lanes do for it, and what of it is late: without a clock or a wait inside. The [`Device`] decides; this knows
//! whom to tell.

use super::job::{Job, Outcome, Reply};
use super::lane::{Lane, Running};
use super::order::{Order, Part, Task};
use super::quarantine::{Quarantine, Quarantined};
use super::run::{about, describe};
use super::waits::Waits;
use super::{Begun, LaneStats, LanesConfig, LanesPlace, OnBegin};
use crate::{EngineError, Interrupt, InterruptCause};
use frostline_batching::device::{Decision, Device, DeviceRules, MemoryEstimate, Room, Run, Work};
use frostline_batching::{Kind, Memory};
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What callers are to be told, once the lock is free.
pub(super) type Told = Vec<(Reply, Outcome)>;

pub(super) struct State {
    pub(super) phase: Phase,
    /// Until when the clock sleeps.
    pub(super) clock_wakes: Option<Instant>,
    pub(super) lanes: Vec<Lane>,
    pub(super) device: Device<Stage>,
    pub(super) entries: HashMap<u64, Entry>,
    pub(super) quarantine: Quarantine,
    pub(super) waits: Waits,
    on_begin: Option<OnBegin>,
    /// Where it is kept to.
    pub(super) memory: Option<Memory>,
    /// Whether that is a device's, whose sessions keep what their runs took; and the host's setting that says how much there is.
    pub(super) on_device: bool,
    pub(super) budget_key: &'static str,
    /// How long a submission waits for a lane.
    pub(super) patience: Duration,
    /// How long a run may keep another tenant waiting.
    hold_up: Duration,
    origin: Instant,
    next_id: u64,
    pub(super) counts: LaneStats,
}

/// From one to the next, never back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    Draining,
    Ended,
}

/// A submission whose caller waits.
pub(super) struct Entry {
    pub(super) job: Arc<Job>,
    pub(super) reply: Reply,
    /// How long it waits for a lane.
    pub(super) until: Instant,
}

/// What came of looking for something to do.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) told: Told,
    /// Whether a lane has something to do now.
    pub(super) begun: bool,
    /// When to look again if nothing happens.
    pub(super) again: Option<Instant>,
    /// Bytes that whoever is next lacks.
    pub(super) lacking: u64,
}

/// When a run is ended, and why then.
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
            memory: config.bounded().cloned(),
            on_device: config.device_memory.is_some(),
            budget_key: config.budget_key(),
            patience: config.queue_deadline,
            hold_up: config.hold_up,
            origin: now,
            next_id: 0,
            counts: LaneStats::default(),
        }
    }

    /// Takes a submission in that waits no longer than `until`; what it is known by.
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
            // A batch without rows runs as well, for the shape of what comes out.
            rows: NonZeroUsize::new(job.rows()).unwrap_or(NonZeroUsize::MIN),
            bytes: job.batch.byte_len(),
            guess,
        };
        let pushed = self.device.push(work);
        pushed.map_err(|full| OpError::of_host(OpErrorCode::TooLarge, full.to_string()))?;
        let (id, job) = (self.next_id, Arc::new(job));
        self.next_id += 1;
        self.entries.insert(id, Entry { job, reply, until });
        Ok(id)
    }

    /// Why nothing of `stage` is run for `tenant` now.
    pub(super) fn refused(&mut self, now: Instant, tenant: &str, stage: &Stage) -> Option<OpError> {
        let case = self.quarantine.check(now, tenant, &stage.model);
        if let Some(case) = case {
            return Some(refusal(stage, &case));
        }
        let left = self.quarantine.pause(now, tenant)?;
        Some(OpError::of_host(
            OpErrorCode::RuntimeError,
            format!(
                "{}: models of yours crashed lanes or kept others waiting, so that nothing of yours is run for {} seconds; run them with ONNX Runtime on a \
                 machine of your own to find the layer or the data at fault",
                describe(stage),
                left.as_secs() + 1
            ),
        ))
    }

    /// Nobody waits for a submission any more: takes it out, and ends the runs that were only for it.
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

    /// Has lanes begin with all that can begin now.
    pub(super) fn decide(&mut self, now: Instant, deadline: &Deadline) -> Decided {
        let mut decided = Decided::default();
        loop {
            match self.device.next(self.time(now), self.room()) {
                Decision::Run(run) => {
                    decided.begun = true;
                    self.start_run(run, now, deadline);
                }
                Decision::Close { lane, stages } => {
                    decided.begun = true;
                    self.close(lane, stages);
                }
                Decision::Refuse { work, needs, most } => {
                    let key = self.budget_key;
                    let refused = self.fail(work, |job| never_fits(job, needs, most, key));
                    decided.told.extend(refused);
                }
                Decision::Wait { until, lacking } => {
                    decided.again = until.map(|until| self.origin + until);
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

    /// How long a submission has waited, or its rows since others of them ran.
    pub(super) fn waited(&self, entry: &Entry, now: Instant) -> Duration {
        let left = entry.until.saturating_duration_since(now);
        let late = now.saturating_duration_since(entry.until);
        self.patience.saturating_sub(left).saturating_add(late)
    }

    /// What lane `index` is to do.
    pub(super) fn take_task(&mut self, index: usize) -> Option<Task> {
        self.lanes.get_mut(index)?.task.take()
    }

    /// Others than lanes lack `bytes` of memory: idle sessions go.
    pub(super) fn relieve(&mut self, bytes: u64) {
        for (lane, stages) in self.device.relieve(bytes) {
            self.close(lane, stages);
        }
    }

    /// Lane `index` has the session that its run needs: it has another deadline from now on.
    pub(super) fn opened(&mut self, index: usize, now: Instant, deadline: Deadline) {
        if let Some(running) = self.lanes.get_mut(index).and_then(|lane| lane.running.as_mut()) {
            running.deadline = deadline;
            running.opened = Some(now);
        }
    }

    /// Lane `index` can work, with this process if it has one, that holds so many bytes.
    pub(super) fn started(&mut self, index: usize, process: Option<u32>, held: u64) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.process = process;
            lane.held = held;
        }
        self.device.started(index, held);
    }

    /// Lane `index` has another process, for the run that it is about to begin. Whether that can begin.
    pub(super) fn replaced(&mut self, index: usize, process: u32, held: u64) -> bool {
        if let Some(lane) = self.lanes.get_mut(index) {
            (lane.process, lane.held) = (Some(process), held);
        }
        self.device.replaced(index, held)
    }

    /// Lane `index` closed sessions as it was told, and holds so many bytes if that can be seen.
    pub(super) fn closed(&mut self, index: usize, held: Option<u64>) {
        if let Some((lane, held)) = self.lanes.get_mut(index).zip(held) {
            lane.held = held;
        }
        self.device.closed(index, held);
    }

    /// Lane `index` gave memory back that only its next run would need.
    pub(super) fn rested(&mut self, index: usize, held: Option<u64>) {
        if let Some((lane, held)) = self.lanes.get_mut(index).zip(held) {
            lane.held = held;
            self.device.rested(index, held);
        }
    }

    /// Whether lanes have something to do, or will.
    pub(super) fn is_working(&self) -> bool {
        !self.entries.is_empty() || self.lanes.iter().any(|lane| lane.running.is_some())
    }

    /// What still has to be told in time: the deadline of everything that waits, or runs and was not given up.
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

    /// Gives up what is late; what its callers are told. Of a run that several share it is not known whose rows were too slow: they run again,
    /// apart.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Told {
        let running = self.running_ids();
        let waited = self
            .entries
            .iter()
            .filter(|(id, entry)| entry.until <= now && !running.contains(id));
        let waited: Vec<u64> = waited.map(|(id, _)| *id).collect();
        let patience = self.patience;
        let mut told: Told = waited
            .into_iter()
            .filter_map(|id| self.fail(id, |job| waited_too_long(&job.stage, patience)))
            .collect();
        let runs = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        let running = runs.filter(|running| running.order.interrupt.cause().is_none());
        let deadlines = running.map(|running| (Arc::clone(&running.order), self.deadline(running)));
        let late: Vec<_> = deadlines.filter(|(_, deadline)| deadline.until <= now).collect();
        for (order, Deadline { late, .. }) in late {
            order.interrupt.trigger(late.clone());
            if let (false, Some(part)) = (order.is_joined(), order.parts.first()) {
                if let InterruptCause::HeldUp { .. } = late {
                    self.quarantine.count(now, &part.job.customer.tenant);
                }
                told.extend(self.fail(part.id, |job| about(&job.stage, &EngineError::from(late))));
            }
        }
        told
    }

    /// When a run is ended: earlier where it keeps a tenant waiting that has nothing on any lane.
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
        let waiting = waiting.filter_map(|entry| entry.until.checked_sub(self.patience));
        let held_up = waiting.min().zip(running.opened).map(|(waits, opened)| Deadline {
            until: waits.max(opened) + self.hold_up,
            late: InterruptCause::HeldUp { limit: self.hold_up },
        });
        let earlier = held_up.filter(|held_up| held_up.until < running.deadline.until);
        earlier.unwrap_or_else(|| running.deadline.clone())
    }

    /// Gives up all that there is; what the callers of what does not run are told.
    pub(super) fn end(&mut self) -> Told {
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

    /// A submission failed for this reason; whom to tell.
    pub(super) fn fail(&mut self, id: u64, why: impl FnOnce(&Job) -> OpError) -> Option<(Reply, Outcome)> {
        let job = Arc::clone(&self.entries.get(&id)?.job);
        Some((self.cancel(id)?, Err(why(&job))))
    }

    /// Submissions with rows in a run.
    pub(super) fn running_ids(&self) -> HashSet<u64> {
        self.lanes.iter().flat_map(Lane::ids).collect()
    }

    fn room(&self) -> Room {
        // Half of all there can be: nothing overflows.
        let free = Room {
            now: u64::MAX / 2,
            most: u64::MAX / 2,
        };
        self.memory.as_ref().map_or(free, |memory| {
            memory.read(|ledger| Room {
                now: ledger.room(Kind::Lane),
                most: ledger.most(Kind::Lane),
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
        "{}: {what} needs {needs} bytes of memory, of which this host has at most {most} for its lanes; take {smaller}, or ask whoever runs \
         the host for a larger {key}",
        describe(&job.stage)
    ))
}

pub(super) fn refusal(stage: &Stage, case: &Quarantined) -> OpError {
    let minutes = case.left.as_secs().div_ceil(60);
    OpError::runtime(format!(
        "{}: this model crashed the engine {} times (the last time: {}) and is not run again for {minutes} minutes; run \
         it with ONNX Runtime on a machine of your own to find the layer or the data at fault",
        describe(stage),
        case.crashes,
        case.how
    ))
}

fn waited_too_long(stage: &Stage, limit: Duration) -> OpError {
    let stage = describe(stage);
    OpError::of_host(
        OpErrorCode::Timeout,
        format!("{stage}: no lane was free within {limit:?}; try again later"),
    )
}

pub(super) fn shutting_down() -> OpError {
    OpError::of_host(OpErrorCode::RuntimeError, InterruptCause::Shutdown.to_string())
}
