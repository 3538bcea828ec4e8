use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Decides who of those that wait is next, and what it gets: without a clock, a lock or a wait inside. [`Waiters`] asks it.
pub trait Policy {
    /// What a tenant asks for.
    type Request;
    /// What it gets, until it gives that back.
    type Share;
    /// Why it may not even wait.
    type Refused;

    /// A tenant asks, and waits from now on; `id` is larger than any before.
    ///
    /// # Errors
    /// Why it does not wait.
    fn ask(&mut self, id: u64, tenant: &str, request: Self::Request) -> Result<(), Self::Refused>;

    /// The one that waits no longer, and what it gets at the time `now`; `None` until somebody asks or gives back.
    fn next(&mut self, now: Instant) -> Option<(u64, Self::Share)>;

    /// Who no longer waits for the sake of who asked just now: it is sent away with nothing.
    fn displaced(&mut self) -> Option<u64> {
        None
    }

    /// Who asked as `id` gives up, having got nothing.
    fn leave(&mut self, id: u64);

    /// What somebody held for `time` is free again.
    fn give_back(&mut self, share: &Self::Share, time: Duration);
}

/// Those who wait for what a [`Policy`] hands out.
pub struct Waiters<P: Policy> {
    state: Mutex<State<P>>,
}

struct State<P: Policy> {
    policy: P,
    waiting: HashMap<u64, oneshot::Sender<Held<P>>>,
    asked: u64,
    closed: bool,
}

/// What somebody got; dropping it gives it back.
pub struct Held<P: Policy> {
    share: P::Share,
    since: Instant,
    waiters: Arc<Waiters<P>>,
}

/// A request that waits: what it gets, or `None` once it, or everybody, is sent away. Dropping it gives up.
pub struct Waiting<P: Policy> {
    id: u64,
    answer: oneshot::Receiver<Held<P>>,
    waiters: Arc<Waiters<P>>,
}

impl<P: Policy> Waiters<P> {
    /// Nobody waits.
    pub fn new(policy: P) -> Arc<Self> {
        let state = State {
            policy,
            waiting: HashMap::new(),
            asked: 0,
            closed: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Waits on behalf of `tenant`.
    ///
    /// # Errors
    /// Why it may not, by the policy.
    pub fn ask(self: &Arc<Self>, tenant: &str, request: P::Request) -> Result<Waiting<P>, P::Refused> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state.lock();
        let id = state.asked + 1;
        if !state.closed {
            state.policy.ask(id, tenant, request)?;
            let displaced = state.policy.displaced();
            let displaced = displaced.and_then(|id| state.waiting.remove(&id));
            state.asked = id;
            state.waiting.insert(id, sender);
            self.hand_out(state);
            drop(displaced);
        }
        Ok(Waiting {
            id,
            answer,
            waiters: Arc::clone(self),
        })
    }

    /// Sends everybody away who waits, and who asks from now on. Whoever got something keeps it.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        waiting.keys().for_each(|id| state.policy.leave(*id));
        drop(state);
        drop(waiting);
    }

    /// Whether everybody is sent away.
    pub fn closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How many have ever waited, those included that got something at once.
    pub fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// Takes something at once, past those who wait.
    pub(crate) fn take_at_once<E>(
        self: &Arc<Self>,
        take: impl FnOnce(&mut P) -> Result<P::Share, E>,
    ) -> Result<Held<P>, E> {
        let share = take(&mut self.state.lock().policy)?;
        Ok(Held {
            share,
            since: Instant::now(),
            waiters: Arc::clone(self),
        })
    }

    /// Changes what the policy goes by.
    pub(crate) fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut P) -> R) -> R {
        let mut state = self.state.lock();
        let changed = change(&mut state.policy);
        self.hand_out(state);
        changed
    }

    pub(crate) fn with_policy<R>(&self, read: impl FnOnce(&P) -> R) -> R {
        read(&self.state.lock().policy)
    }

    /// Gives out all that can be given now.
    fn hand_out(self: &Arc<Self>, mut state: MutexGuard<'_, State<P>>) {
        let since = Instant::now();
        while let Some((id, share)) = state.policy.next(since) {
            let waiter = state.waiting.remove(&id);
            let held = Held {
                share,
                since,
                waiters: Arc::clone(self),
            };
            // Whoever left meanwhile gives it back, for which it needs the lock.
            MutexGuard::unlocked(&mut state, || drop(waiter.map(|waiter| waiter.send(held))));
        }
    }
}

impl<P: Policy> Future for Waiting<P> {
    type Output = Option<Held<P>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(context).map(Result::ok)
    }
}

impl<P: Policy> Drop for Waiting<P> {
    fn drop(&mut self) {
        if self.answer.is_terminated() {
            return;
        }
        let mut state = self.waiters.state.lock();
        if state.waiting.remove(&self.id).is_some() {
            state.policy.leave(self.id);
            // Others may have stood behind it.
            self.waiters.hand_out(state);
        }
    }
}

impl<P: Policy> Held<P> {
    /// Changes what is held.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut P, &mut P::Share) -> R) -> R {
        let Self { share, waiters, .. } = self;
        waiters.change(|policy| change(policy, share))
    }
}

impl<P: Policy> Deref for Held<P> {
    type Target = P::Share;

    fn deref(&self) -> &P::Share {
        &self.share
    }
}

impl<P: Policy> Drop for Held<P> {
    fn drop(&mut self) {
        let mut state = self.waiters.state.lock();
        state.policy.give_back(&self.share, self.since.elapsed());
        self.waiters.hand_out(state);
    }
}
