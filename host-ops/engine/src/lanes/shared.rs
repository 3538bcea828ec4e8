//! State shared by lane threads and callers. A lock protects it, which is only held briefly.

use super::job::{Reply, RowJob};
use super::lane::{Deadline, Lane};
use super::order::{OrderResult, Task};
use super::overdue::CONTENDED_GRACE;
use super::preparing::PreparationTask;
use super::source::Networks;
use super::state::{LanesState, Outcomes, Phase};
use super::{LanesConfig, StageSource};
use crate::InterruptCause;
use frostline_batching::{Kind, Memory, OutOfBudget, Reserved};
use frostline_tensor::OpError;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Shared {
    pub(super) config: LanesConfig,
    pub(super) networks: Networks,
    pub(super) state: Mutex<LanesState>,
    /// True while work waits for memory that is reserved elsewhere.
    waits_for_memory: AtomicBool,
    /// Signaled when a lane may have a new task, and when the lanes drain or end.
    pub(super) work: Condvar,
    /// Signaled when an earlier deadline is set, and when the lanes end.
    clock: Condvar,
    /// Signaled when a lane has finished a batch, and when the lanes end.
    finished: Condvar,
}

impl Shared {
    pub(super) fn new(config: LanesConfig, source: Arc<dyn StageSource>) -> Arc<Self> {
        let networks = Networks::new(&config, source);
        // A preparation keeps a core busy. With half as many as lanes, the lanes keep most of the cores.
        let preparations = match networks.prepared {
            Some(_) => (config.lanes / 2).max(1),
            None => 0,
        };
        let shared = Arc::new(Self {
            state: Mutex::new(LanesState::new(&config, preparations, Instant::now())),
            networks,
            config,
            waits_for_memory: AtomicBool::new(false),
            work: Condvar::new(),
            clock: Condvar::new(),
            finished: Condvar::new(),
        });
        shared.listen();
        shared
    }

    /// Subscribes to changes of the memory ledger.
    fn listen(self: &Arc<Self>) {
        let Some(memory) = self.config.bounding_ledger() else {
            return;
        };
        let shared = Arc::downgrade(self);
        memory.on_room(move || {
            if let Some(shared) = shared.upgrade()
                && shared.waits_for_memory.load(Ordering::Relaxed)
            {
                // Once the lock was held, no lane is between checking for work and waiting.
                drop(shared.state.lock());
                shared.work.notify_all();
            }
        });
        let shared = Arc::downgrade(self);
        memory.on_pressure(move |bytes| {
            if let Some(shared) = shared.upgrade()
                && !shared.waits_for_memory.load(Ordering::Relaxed)
            {
                shared.state.lock().relieve(bytes);
                shared.work.notify_all();
            }
        });
    }

    /// Queues a submission and returns the submission's id.
    pub(super) fn push(&self, job: RowJob, reply: Reply) -> Result<u64, OpError> {
        let now = Instant::now();
        let until = now + self.config.queue_deadline;
        let guess = self.networks.source.guess(&job.stage);
        let mut state = self.state.lock();
        let id = state.push(job, reply, guess, now, until)?;
        self.wake_clock(&mut state, now + self.config.hold_up.min(CONTENDED_GRACE));
        drop(state);
        self.work.notify_one();
        Ok(id)
    }

    /// Removes a submission from the queue or ends its engine batches.
    pub(super) fn cancel(&self, id: u64) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let reply = state.cancel(id, now);
        self.wake_clock(&mut state, now);
        drop(state);
        drop(reply);
        self.work.notify_one();
    }

    /// Waits for the next task of lane `index`. Returns `None` when no more tasks will follow. Returns
    /// [`Task::Rest`] after [`LanesConfig::idle`] without a task, or when work waits for memory, unless the
    /// lane has already `rested`.
    pub(super) fn next(&self, index: usize, rested: bool) -> Option<Task> {
        let idle = (!rested).then(|| Instant::now() + self.config.idle);
        let mut state = self.state.lock();
        loop {
            let again = self.decide(&mut state);
            if let Some(task) = state.lanes.get_mut(index).and_then(|lane| lane.task.take()) {
                return Some(task);
            }
            if state.is_over() {
                return None;
            }
            let now = Instant::now();
            let lacks = self.waits_for_memory.load(Ordering::Relaxed);
            if idle.is_some_and(|idle| lacks || idle <= now) {
                return Some(Task::Rest);
            }
            match again.into_iter().chain(idle).min() {
                Some(until) => drop(self.work.wait_until(&mut state, until)),
                None => self.work.wait(&mut state),
            }
        }
    }

    /// Waits for the next stage to prepare as `slot`. Returns `None` when no more preparations will follow.
    pub(super) fn next_preparation(&self, slot: usize) -> Option<PreparationTask> {
        let mut state = self.state.lock();
        loop {
            let again = self.decide(&mut state);
            if let Some(preparation) = state.preparations.take_task(slot) {
                return Some(preparation);
            }
            if state.is_over() {
                return None;
            }
            match again {
                Some(until) => drop(self.work.wait_until(&mut state, until)),
                None => self.work.wait(&mut state),
            }
        }
    }

    pub(super) fn finish_preparation(&self, slot: usize) {
        self.settle(|state, now| state.finish_preparation(slot, now));
        self.work.notify_all();
    }

    /// Starts everything that can start. Returns when to decide again if no event occurs before.
    fn decide(&self, state: &mut MutexGuard<'_, LanesState>) -> Option<Instant> {
        let mut asked = false;
        loop {
            let now = Instant::now();
            let decided = state.decide(now);
            self.waits_for_memory
                .store(decided.lacking > 0, Ordering::Relaxed);
            if decided.assigned_task {
                self.wake_clock(state, now + self.config.open_deadline.min(self.config.hold_up));
                self.work.notify_all();
            }
            let lack = !asked && decided.lacking > 0;
            if !lack && decided.outcomes.is_empty() {
                return decided.next_decision;
            }
            asked |= lack;
            MutexGuard::unlocked(state, || {
                tell_all(decided.outcomes);
                // Asks other parts of the host to release cached memory.
                let memory = self.config.bounding_ledger().filter(|_| lack);
                memory.inspect(|memory| memory.request_release(decided.lacking));
            });
        }
    }

    /// Starts the time limit for the execution on lane `index`, after the session was opened.
    pub(super) fn opened(&self, index: usize) {
        let now = Instant::now();
        let limit = self.config.run_deadline;
        let until = now + limit;
        let late = InterruptCause::Deadline { limit };
        let mut state = self.state.lock();
        if let Some(running) = state.running_mut(index) {
            running.deadline = Deadline { until, late };
        }
        self.wake_clock(&mut state, until.min(now + self.config.hold_up));
    }

    /// Waits for `time`. Returns false if the lanes end before.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        self.finished
            .wait_while_for(&mut state, |state| state.phase != Phase::Ended, time);
        state.phase != Phase::Ended
    }

    /// Records that the process of lane `index` does not exist.
    pub(super) fn absent(&self, index: usize) {
        tell_all(self.update(|state| state.absent(index, Instant::now())));
    }

    /// Changes the state, which may allow a lane to start a task.
    pub(super) fn update<R>(&self, change: impl FnOnce(&mut LanesState) -> R) -> R {
        let changed = change(&mut self.state.lock());
        self.work.notify_one();
        changed
    }

    /// Records that a lane's process exceeded a limit while it was idle, after it ran `model` for `tenant`.
    pub(super) fn blame(&self, tenant: &str, model: &str, how: &str) {
        let mut state = self.state.lock();
        state.counts.crashes += 1;
        state.quarantine.record_crash(Instant::now(), tenant, model, how);
    }

    /// Changes the reservation of lane `index` to `bytes`.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] and keeps the reservation if not enough memory is free.
    pub(super) fn book(&self, index: usize, bytes: u64) -> Result<(), OutOfBudget> {
        let Some(memory) = self.config.bounding_ledger() else {
            return Ok(());
        };
        self.book_in(memory, index, |lane| &mut lane.memory, bytes)
    }

    /// Books the host memory of lane `index` if device memory bounds the lanes.
    pub(super) fn book_host_memory(&self, index: usize, bytes: Option<u64>) {
        if let Some((memory, bytes)) = self.config.host_ledger().zip(bytes)
            && let Err(error) = self.book_in(memory, index, |lane| &mut lane.host_memory, bytes)
        {
            tracing::warn!(lane = index, %error, "a lane's process exceeds the host's memory budget");
        }
    }

    fn book_in(
        &self,
        memory: &Memory,
        index: usize,
        of: fn(&mut Lane) -> &mut Option<Reserved>,
        bytes: u64,
    ) -> Result<(), OutOfBudget> {
        // The ledger notifies others when memory is released, and they need this lock.
        let reserved = self.with_lane(index, |lane| of(lane).take()).flatten();
        let (reserved, booked) = match reserved {
            Some(mut reserved) => {
                let booked = reserved.resize(bytes);
                (Some(reserved), booked)
            }
            None => match memory.try_reserve("", Kind::Lane, bytes) {
                Ok(reserved) => (Some(reserved), Ok(())),
                Err(error) => (None, Err(error)),
            },
        };
        self.with_lane(index, |lane| *of(lane) = reserved);
        booked
    }

    /// Records the bytes that lane `index` holds before a batch starts, if they are known.
    pub(super) fn holds(&self, index: usize, held: Option<u64>) {
        self.with_lane(index, |lane| lane.held = held.unwrap_or(lane.held));
    }

    /// Returns the bytes that lane `index` holds between batches.
    pub(super) fn held(&self, index: usize) -> u64 {
        self.with_lane(index, |lane| lane.held).unwrap_or(0)
    }

    fn with_lane<R>(&self, index: usize, of: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        self.state.lock().lanes.get_mut(index).map(of)
    }

    /// Same as [`LanesState::gave_back`], and reduces the reservation of the lane.
    pub(super) fn gave_back(&self, index: usize, held: Option<u64>, closed: bool) {
        self.shrink(index, held);
        self.update(|state| state.gave_back(index, held, closed));
    }

    /// Records the result of lane `index` and notifies the callers.
    pub(super) fn finish(&self, index: usize, ended: OrderResult) {
        if let OrderResult::Ran(end) = &ended {
            self.shrink(index, end.memory.map(|memory| memory.held));
        }
        self.settle(|state, now| state.finish(index, ended, now));
    }

    /// Ends work and notifies the callers.
    fn settle(&self, end: impl FnOnce(&mut LanesState, Instant) -> Outcomes) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let told = end(&mut state, now);
        // Rows that will run again have a new deadline, and the tenant may not be served any longer.
        self.wake_clock(&mut state, now + self.config.hold_up.min(CONTENDED_GRACE));
        drop(state);
        self.finished.notify_all();
        tell_all(told);
    }

    /// Reduces the reservation of lane `index` to the bytes that it holds.
    fn shrink(&self, index: usize, held: Option<u64>) {
        let held = held.unwrap_or_else(|| self.held(index));
        if let Err(error) = self.book(index, held) {
            tracing::warn!(lane = index, %error, "a lane exceeds the reserved memory");
        }
    }

    /// Body of the clock thread, which gives up overdue work until the lanes end.
    pub(super) fn watch(&self) {
        let mut state = self.state.lock();
        while state.phase != Phase::Ended {
            let overdue = state.take_overdue(Instant::now());
            if !overdue.is_empty() {
                MutexGuard::unlocked(&mut state, || tell_all(overdue));
                continue;
            }
            state.clock_wakes = state.next_deadline();
            match state.clock_wakes {
                Some(wakes) => drop(self.clock.wait_until(&mut state, wakes)),
                None => self.clock.wait(&mut state),
            }
        }
    }

    /// Refuses new work, waits up to `grace` until the lanes have finished, and ends the rest.
    pub(super) fn drain(&self, grace: Duration) {
        let mut state = self.state.lock();
        state.phase = state.phase.max(Phase::Draining);
        self.work.notify_all();
        self.finished
            .wait_while_for(&mut state, |state| state.is_working(), grace);
        let left = state.end(Instant::now());
        drop(state);
        for waits in [&self.work, &self.clock, &self.finished] {
            waits.notify_all();
        }
        tell_all(left);
    }

    /// Wakes the clock thread if `deadline` is earlier than the time until which it sleeps.
    fn wake_clock(&self, state: &mut LanesState, deadline: Instant) {
        if state.clock_wakes.is_none_or(|wakes| deadline < wakes) {
            state.clock_wakes = Some(deadline);
            self.clock.notify_one();
        }
    }
}

/// Sends outcomes to callers that are still waiting.
fn tell_all(told: Outcomes) {
    for (reply, outcome) in told {
        drop(reply.send(outcome));
    }
}
