//! What the lanes' threads and their callers share. Every method holds the lock briefly and never waits for a network.

use super::child::{Quarantine, Quarantined};
use super::state::{Lane, Phase, Running, State, Waiting};
use super::{LaneStats, LanesConfig, LanesPlace, StageSource};
use crate::{Interrupt, InterruptCause};
use frostline_batching::{LaneQueue, QueueLimits};
use frostline_tensor::{OpError, Stage, Tensor};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::Span;

/// Without a job for so long, a lane gives memory back: touching it again costs some ten milliseconds, a hundredth of this.
const IDLE: Duration = Duration::from_secs(1);

pub(super) type Outcome = Result<Tensor, OpError>;
pub(super) type Reply = oneshot::Sender<Outcome>;

pub(super) struct Shared {
    config: LanesConfig,
    source: Arc<dyn StageSource>,
    state: Mutex<State>,
    quarantine: Mutex<Quarantine>,
    /// Signalled when a lane may have something to do.
    work: Condvar,
    /// Signalled when the clock must look at deadlines again.
    clock: Condvar,
    /// Signalled when a lane has finished something, and when the lanes end.
    finished: Condvar,
}

/// A piece of work on its way through a lane.
pub(super) struct Job {
    pub(super) tenant: Arc<str>,
    pub(super) stage: Stage,
    pub(super) batch: Tensor,
    pub(super) interrupt: Interrupt,
    /// Where its log lines belong.
    pub(super) span: Span,
}

/// What a submission is known by while it is under way.
pub(super) struct Ticket {
    pub(super) id: u64,
    pub(super) interrupt: Interrupt,
    pub(super) outcome: oneshot::Receiver<Outcome>,
}

impl Shared {
    pub(super) fn new(config: LanesConfig, source: Arc<dyn StageSource>) -> Self {
        let limits = QueueLimits {
            jobs: config.queue_jobs,
            bytes: config.queue_bytes,
        };
        let state = State {
            queue: LaneQueue::new(limits),
            lanes: (0..config.lanes).map(|_| Lane::default()).collect(),
            phase: Phase::Open,
            next_id: 0,
            clock_wakes: None,
            counts: LaneStats::default(),
        };
        let quarantine = match &config.place {
            LanesPlace::InProcess => Duration::ZERO,
            LanesPlace::Child(place) => place.quarantine,
        };
        Self {
            config,
            source,
            state: Mutex::new(state),
            quarantine: Mutex::new(Quarantine::new(quarantine)),
            work: Condvar::new(),
            clock: Condvar::new(),
            finished: Condvar::new(),
        }
    }

    pub(super) fn config(&self) -> &LanesConfig {
        &self.config
    }

    pub(super) fn source(&self) -> &dyn StageSource {
        &*self.source
    }

    /// Queues `batch` for `stage`.
    pub(super) fn enqueue(&self, tenant: &str, stage: &Stage, batch: Tensor) -> Result<Ticket, OpError> {
        let (reply, outcome) = oneshot::channel();
        let interrupt = Interrupt::new();
        let bytes = batch.byte_len();
        let job = Job {
            tenant: tenant.into(),
            stage: stage.clone(),
            batch,
            interrupt: interrupt.clone(),
            span: Span::current(),
        };
        let until = Instant::now() + self.config.queue_deadline;
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(shutting_down());
        }
        let id = state.next_id;
        state
            .queue
            .push(tenant, id, bytes, Waiting { job, reply, until })
            .map_err(|full| OpError::too_large(full.to_string()))?;
        state.next_id += 1;
        self.wake_clock(&mut state, until);
        drop(state);
        self.work.notify_one();
        Ok(Ticket {
            id,
            interrupt,
            outcome,
        })
    }

    /// Takes a submission back: out of the queue, or ends its run.
    pub(super) fn cancel(&self, id: u64, interrupt: &Interrupt) {
        let mut state = self.lock();
        let waiting = state.queue.remove(id);
        match &waiting {
            Some(_) => state.counts.jobs_failed += 1,
            None => interrupt.trigger(InterruptCause::Cancelled),
        }
        drop(state);
    }

    /// The next job for lane `index`, waiting for one; `None` when there will be no more. When none comes for [`IDLE`], `rest` is called
    /// once.
    pub(super) fn next_job(&self, index: usize, rest: impl FnOnce()) -> Option<Job> {
        if let Some(next) = self.next_within(index, Some(IDLE)) {
            return next;
        }
        rest();
        self.next_within(index, None).flatten()
    }

    /// The same within `limit`; `None` when that is over.
    fn next_within(&self, index: usize, limit: Option<Duration>) -> Option<Option<Job>> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = self.lock();
        loop {
            if let Some((_, waiting)) = state.queue.pop() {
                return Some(Some(self.begin(&mut state, index, waiting)));
            }
            if state.phase != Phase::Open {
                return Some(None);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.work.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn begin(&self, state: &mut State, index: usize, waiting: Waiting) -> Job {
        let since = Instant::now();
        let limit = self.config.open_deadline;
        let until = since + limit;
        let Waiting { job, reply, .. } = waiting;
        let running = Running {
            reply: Some(reply),
            tenant: Arc::clone(&job.tenant),
            stage: job.stage.clone(),
            interrupt: job.interrupt.clone(),
            since,
            until,
            late: InterruptCause::OpenDeadline { limit },
        };
        if let Some(lane) = state.lanes.get_mut(index) {
            lane.running = Some(running);
        }
        self.wake_clock(state, until);
        job
    }

    /// Lane `index` begins with its job once more: the time to open a session counts again.
    pub(super) fn opening(&self, index: usize) {
        let limit = self.config.open_deadline;
        self.set_deadline(index, limit, InterruptCause::OpenDeadline { limit });
    }

    /// Lane `index` has the session it needs: from now on the time of the run counts.
    pub(super) fn opened(&self, index: usize) {
        let limit = self.config.run_deadline;
        self.set_deadline(index, limit, InterruptCause::Deadline { limit });
    }

    fn set_deadline(&self, index: usize, limit: Duration, late: InterruptCause) {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        if let Some(running) = state.lanes.get_mut(index).and_then(|lane| lane.running.as_mut()) {
            running.until = until;
            running.late = late;
        }
        self.wake_clock(&mut state, until);
    }

    /// Waits for `time`; `false` when the lanes end before.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let (state, _) = self
            .finished
            .wait_timeout_while(self.lock(), time, |state| state.phase != Phase::Ended)
            .unwrap_or_else(PoisonError::into_inner);
        state.phase != Phase::Ended
    }

    /// Lane `index` works with this process from now on.
    pub(super) fn set_process(&self, index: usize, process: Option<u32>) {
        if let Some(lane) = self.lock().lanes.get_mut(index) {
            lane.process = process;
        }
    }

    /// A process was lost while it ran `job`, and `how` it ended.
    pub(super) fn note_crash(&self, job: &Job, how: &str) {
        self.lock().counts.crashes += 1;
        self.lock_quarantine()
            .note(Instant::now(), &job.tenant, &job.stage.model, how);
    }

    /// Whether the model of `job` crashed too many processes.
    pub(super) fn quarantined(&self, job: &Job) -> Option<Quarantined> {
        self.lock_quarantine()
            .check(Instant::now(), &job.tenant, &job.stage.model)
    }

    fn lock_quarantine(&self) -> MutexGuard<'_, Quarantine> {
        self.quarantine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the outcome of what lane `index` ran, which had `samples` rows.
    pub(super) fn finish(&self, index: usize, samples: usize, outcome: Outcome) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let running = state.lanes.get_mut(index).and_then(|lane| {
            let running = lane.running.take()?;
            let time = running.since.elapsed();
            lane.busy += time;
            state.queue.ran(&running.tenant, time);
            Some(running)
        });
        match &outcome {
            Ok(_) => {
                state.counts.jobs_done += 1;
                state.counts.samples_done += samples as u64;
            }
            Err(_) => state.counts.jobs_failed += 1,
        }
        drop(guard);
        self.finished.notify_all();
        if let Some(reply) = running.and_then(|running| running.reply) {
            tell(reply, outcome);
        }
    }

    /// Ends what is beyond its deadline, then waits for the next one. `false` when there will be no more.
    pub(super) fn tick(&self) -> bool {
        let mut state = self.lock();
        if state.phase == Phase::Ended {
            return false;
        }
        let overdue = state.take_overdue(Instant::now(), &self.config);
        if overdue.is_empty() {
            state.clock_wakes = state.next_deadline();
            drop(wait_until(&self.clock, state));
            return true;
        }
        drop(state);
        for (reply, error) in overdue {
            tell(reply, Err(error));
        }
        true
    }

    /// Takes no more work and lets the lanes finish what there is; what is left after `grace` is ended.
    pub(super) fn drain(&self, grace: Duration) {
        let until = Instant::now() + grace;
        let mut state = self.lock();
        state.phase = state.phase.max(Phase::Draining);
        self.work.notify_all();
        while state.is_working() {
            let Some(left) = until
                .checked_duration_since(Instant::now())
                .filter(|left| !left.is_zero())
            else {
                break;
            };
            state = self
                .finished
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.phase = Phase::Ended;
        let left = state.queue.remove_where(|_| true);
        state.counts.jobs_failed += left.len() as u64;
        let running = state.lanes.iter().filter_map(|lane| lane.running.as_ref());
        running.for_each(|running| running.interrupt.trigger(InterruptCause::Shutdown));
        drop(state);
        self.work.notify_all();
        self.clock.notify_all();
        self.finished.notify_all();
        left.into_iter()
            .for_each(|waiting| tell(waiting.reply, Err(shutting_down())));
    }

    pub(super) fn stats(&self) -> LaneStats {
        let state = self.lock();
        let busy = |lane: &Lane| {
            lane.busy
                + lane
                    .running
                    .as_ref()
                    .map_or(Duration::ZERO, |r| r.since.elapsed())
        };
        LaneStats {
            queued: state.queue.len(),
            queued_bytes: state.queue.bytes(),
            running: state.lanes.iter().filter(|lane| lane.running.is_some()).count(),
            processes: state.lanes.iter().filter_map(|lane| lane.process).collect(),
            busy: state.lanes.iter().map(busy).collect(),
            ..state.counts.clone()
        }
    }

    /// The clock sleeps until the earliest deadline; an earlier one must wake it.
    fn wake_clock(&self, state: &mut State, deadline: Instant) {
        if state.clock_wakes.is_none_or(|wakes| deadline < wakes) {
            state.clock_wakes = Some(deadline);
            self.clock.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait_until<'a>(clock: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    match state.clock_wakes {
        Some(wakes) => {
            let left = wakes.saturating_duration_since(Instant::now());
            clock
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0
        }
        None => clock.wait(state).unwrap_or_else(PoisonError::into_inner),
    }
}

/// A caller that is gone does not want to know.
fn tell(reply: Reply, outcome: Outcome) {
    drop(reply.send(outcome));
}

fn shutting_down() -> OpError {
    OpError::runtime(InterruptCause::Shutdown.to_string())
}
