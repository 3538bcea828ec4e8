use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Selects the next waiting request of [`Waiters`] and the granted share. Implementations contain no clocks,
/// locks or waits.
pub trait Policy {
    /// Request of a tenant.
    type Request;
    /// Share granted to a request until given back.
    type Share;
    /// Reason for rejecting a request.
    type Refused;

    /// Adds a waiting request of a tenant; `id` is larger than all earlier ones.
    ///
    /// # Errors
    /// Returns the reason if the request is rejected.
    fn ask(&mut self, id: u64, tenant: &str, request: Self::Request) -> Result<(), Self::Refused>;

    /// Removes the next request to serve and returns it with its share. `None` if no request can be served until
    /// another one arrives or a share is given back.
    fn next(&mut self) -> Option<(u64, Self::Share)>;

    /// Returns the request displaced by the latest call of [`Self::ask`]. [`Waiters`] dismisses this request.
    fn displaced(&mut self) -> Option<u64> {
        None
    }

    /// Removes the request `id`, which gave up before it received a share.
    fn leave(&mut self, id: u64);

    /// Releases a share after `time`.
    fn give_back(&mut self, share: &Self::Share, time: Duration);
}

/// Queue of requests for shares of a [`Policy`].
pub struct Waiters<P: Policy> {
    state: Mutex<WaiterList<P>>,
}

struct WaiterList<P: Policy> {
    policy: P,
    waiting: HashMap<u64, oneshot::Sender<HeldShare<P>>>,
    asked: u64,
    closed: bool,
}

/// A share that is given back on drop.
pub struct HeldShare<P: Policy> {
    share: P::Share,
    since: Instant,
    waiters: Arc<Waiters<P>>,
}

/// Future of a waiting request. Resolves to the share, or to `None` if the request is dismissed or the queue
/// is closed. Dropping the future withdraws the request.
pub struct Waiting<P: Policy> {
    id: u64,
    answer: oneshot::Receiver<HeldShare<P>>,
    waiters: Arc<Waiters<P>>,
}

impl<P: Policy> Waiters<P> {
    /// Creates an empty queue.
    pub fn new(policy: P) -> Arc<Self> {
        let state = WaiterList {
            policy,
            waiting: HashMap::new(),
            asked: 0,
            closed: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Adds a request of `tenant`. If the queue is closed, the returned future resolves to `None`.
    ///
    /// # Errors
    /// Returns the policy's reason if it rejects the request.
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

    /// Dismisses all waiting and all later requests. Granted shares remain valid.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        waiting.keys().for_each(|id| state.policy.leave(*id));
        drop(state);
        drop(waiting);
    }

    /// Accepts requests again.
    pub fn reopen(&self) {
        self.state.lock().closed = false;
    }

    /// True after [`Self::close`], until [`Self::reopen`].
    pub fn closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Number of requests accepted so far, including requests served immediately.
    pub fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// Grants a share immediately, ahead of all waiting requests.
    pub(crate) fn take_at_once<E>(
        self: &Arc<Self>,
        take: impl FnOnce(&mut P) -> Result<P::Share, E>,
    ) -> Result<HeldShare<P>, E> {
        let share = take(&mut self.state.lock().policy)?;
        Ok(HeldShare {
            share,
            since: Instant::now(),
            waiters: Arc::clone(self),
        })
    }

    /// Changes the policy's state and serves the requests that can be served afterwards.
    pub(crate) fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut P) -> R) -> R {
        let mut state = self.state.lock();
        let changed = change(&mut state.policy);
        self.hand_out(state);
        changed
    }

    pub(crate) fn with_policy<R>(&self, read: impl FnOnce(&P) -> R) -> R {
        read(&self.state.lock().policy)
    }

    /// Serves all requests that can be served now.
    fn hand_out(self: &Arc<Self>, mut state: MutexGuard<'_, WaiterList<P>>) {
        let since = Instant::now();
        while let Some((id, share)) = state.policy.next() {
            let waiter = state.waiting.remove(&id);
            let held = HeldShare {
                share,
                since,
                waiters: Arc::clone(self),
            };
            // If the receiver was dropped, the share is given back, which needs the lock.
            MutexGuard::unlocked(&mut state, || drop(waiter.map(|waiter| waiter.send(held))));
        }
    }
}

impl<P: Policy> Future for Waiting<P> {
    type Output = Option<HeldShare<P>>;

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
            // The withdrawal can unblock other requests.
            self.waiters.hand_out(state);
        }
    }
}

impl<P: Policy> HeldShare<P> {
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut P, &mut P::Share) -> R) -> R {
        let Self { share, waiters, .. } = self;
        waiters.change(|policy| change(policy, share))
    }
}

impl<P: Policy> Deref for HeldShare<P> {
    type Target = P::Share;

    fn deref(&self) -> &P::Share {
        &self.share
    }
}

impl<P: Policy> Drop for HeldShare<P> {
    fn drop(&mut self) {
        let mut state = self.waiters.state.lock();
        state.policy.give_back(&self.share, self.since.elapsed());
        self.waiters.hand_out(state);
    }
}
