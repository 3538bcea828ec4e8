//! What the lanes' threads and their callers share: one lock, held briefly, and what each of them waits for.

use super::quarantine::Quarantined;
use super::run::{Outcome, Reply, Submission};
use super::source::Networks;
use super::state::{Deadline, Phase, State};
use super::{LaneStats, LanesConfig, StageSource};
use crate::{Interrupt, InterruptCause};
use frostline_tensor::OpError;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// With nothing to run for so long, a lane gives memory back: touching it again costs some ten milliseconds, a hundredth of this.
const IDLE: Duration = Duration::from_secs(1);

pub(super) struct Shared {
    config: LanesConfig,
    networks: Networks,
    state: Mutex<State>,
    /// Signalled when a lane may have something to do.
    work: Condvar,
    /// Signalled when the clock sleeps too long.
    clock: Condvar,
    /// Signalled when a lane has finished something, and when the lanes end.
    finished: Condvar,
}

impl Shared {
    pub(super) fn new(config: LanesConfig, source: Arc<dyn StageSource>) -> Self {
        Self {
            state: Mutex::new(State::new(&config)),
            networks: Networks::new(&config, source),
            config,
            work: Condvar::new(),
            clock: Condvar::new(),
            finished: Condvar::new(),
        }
    }

    pub(super) fn config(&self) -> &LanesConfig {
        &self.config
    }

    pub(super) fn source(&self) -> &Networks {
        &self.networks
    }

    pub(super) fn stats(&self) -> LaneStats {
        self.state.lock().stats(Instant::now())
    }

    /// Queues a submission; what it is known by.
    pub(super) fn push(&self, submission: Submission, reply: Reply) -> Result<u64, OpError> {
        let until = Instant::now() + self.config.queue_deadline;
        let mut state = self.state.lock();
        let id = state.push(submission, reply, until)?;
        self.wake_clock(&mut state, until);
        drop(state);
        self.work.notify_one();
        Ok(id)
    }

    /// Takes a submission back: out of the queue, or ends its run.
    pub(super) fn cancel(&self, id: u64, interrupt: &Interrupt) {
        let waiting = self.state.lock().remove(id);
        if waiting.is_none() {
            interrupt.trigger(InterruptCause::Cancelled);
        }
    }

    /// What lane `index` runs next, waiting for it; `None` when there will be no more. When none comes for [`IDLE`], `rest` is called once.
    pub(super) fn next(&self, index: usize, rest: impl FnOnce()) -> Option<Submission> {
        let (idle, mut rest) = (Instant::now() + IDLE, Some(rest));
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let deadline = self.to_open(now);
            let until = deadline.until;
            if let Some(submission) = state.begin(index, now, deadline) {
                self.wake_clock(&mut state, until);
                return Some(submission);
            }
            if state.phase != Phase::Open {
                return None;
            }
            if rest.is_none() {
                self.work.wait(&mut state);
            } else if self.work.wait_until(&mut state, idle).timed_out()
                && let Some(rest) = rest.take()
            {
                MutexGuard::unlocked(&mut state, rest);
            }
        }
    }

    /// Lane `index` begins with its run once more: the time to open a session counts again.
    pub(super) fn opening(&self, index: usize) {
        self.set_deadline(index, self.to_open(Instant::now()));
    }

    /// Lane `index` has the session it needs: from now on the time of the run counts.
    pub(super) fn opened(&self, index: usize) {
        let limit = self.config.run_deadline;
        self.set_deadline(
            index,
            Deadline {
                until: Instant::now() + limit,
                late: InterruptCause::Deadline { limit },
            },
        );
    }

    fn to_open(&self, now: Instant) -> Deadline {
        let limit = self.config.open_deadline;
        Deadline {
            until: now + limit,
            late: InterruptCause::OpenDeadline { limit },
        }
    }

    fn set_deadline(&self, index: usize, deadline: Deadline) {
        let (mut state, until) = (self.state.lock(), deadline.until);
        state.set_deadline(index, deadline);
        self.wake_clock(&mut state, until);
    }

    /// Waits for `time`; `false` when the lanes end before.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        let open = |state: &mut State| state.phase != Phase::Ended;
        self.finished.wait_while_for(&mut state, open, time);
        state.phase != Phase::Ended
    }

    /// Lane `index` works with this process from now on.
    pub(super) fn set_process(&self, index: usize, process: Option<u32>) {
        self.state.lock().set_process(index, process);
    }

    /// A process was lost while it ran `submission`, and `how` it ended.
    pub(super) fn note_crash(&self, submission: &Submission, how: &str) {
        self.state.lock().crashed(submission, how, Instant::now());
    }

    /// Whether the model of `submission` crashed too many processes.
    pub(super) fn quarantined(&self, submission: &Submission) -> Option<Quarantined> {
        let Submission { customer, run, .. } = submission;
        let mut state = self.state.lock();
        state
            .quarantine
            .check(Instant::now(), &customer.tenant, &run.stage.model)
    }

    /// Tells the outcome of what lane `index` ran, which had `samples` rows.
    pub(super) fn finish(&self, index: usize, samples: usize, outcome: Outcome) {
        let samples = outcome.is_ok().then_some(samples);
        let reply = self.state.lock().finish(index, samples, Instant::now());
        self.finished.notify_all();
        if let Some(reply) = reply {
            tell(reply, outcome);
        }
    }

    /// The clock: ends what is beyond its deadline, until there will be no more.
    pub(super) fn watch(&self) {
        let mut state = self.state.lock();
        while state.phase != Phase::Ended {
            let overdue = state.take_overdue(Instant::now(), &self.config);
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

    /// Takes no more work and lets the lanes finish what there is; what is left after `grace` is ended.
    pub(super) fn drain(&self, grace: Duration) {
        let mut state = self.state.lock();
        state.phase = state.phase.max(Phase::Draining);
        self.work.notify_all();
        let working = |state: &mut State| state.is_working();
        self.finished.wait_while_for(&mut state, working, grace);
        let left = state.end();
        drop(state);
        for waits in [&self.work, &self.clock, &self.finished] {
            waits.notify_all();
        }
        tell_all(left);
    }

    /// The clock sleeps until the earliest deadline; an earlier one must wake it.
    fn wake_clock(&self, state: &mut State, deadline: Instant) {
        if state.clock_wakes.is_none_or(|wakes| deadline < wakes) {
            state.clock_wakes = Some(deadline);
            self.clock.notify_one();
        }
    }
}

fn tell_all(errors: Vec<(Reply, OpError)>) {
    for (reply, error) in errors {
        tell(reply, Err(error));
    }
}

/// A caller that is gone does not want to know.
fn tell(reply: Reply, outcome: Outcome) {
    drop(reply.send(outcome));
}
