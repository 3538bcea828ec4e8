use crate::error::SandboxError;
use frostline_batching::Turns;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A number of passes for long work; of those who wait, the tenant whose work has taken the least time is next.
///
/// A tenant has at most as many passes as it leaves free, so one that takes all it can leaves half of them, a second one half
/// of the rest: whoever comes anew finds one. A single pass goes from one to the next.
#[derive(Clone)]
pub(crate) struct Gate {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    turns: Turns<Waiter>,
    free: usize,
    next: u64,
}

struct Waiter {
    id: u64,
    pass: oneshot::Sender<Pass>,
}

/// The right to work until dropped.
pub(crate) struct Pass {
    /// `None` when it never reached whoever asked.
    held: Option<(Gate, Arc<str>, Instant)>,
}

/// Takes a request back that nobody waits for any more.
struct Leave<'a> {
    gate: &'a Gate,
    id: u64,
}

impl Gate {
    pub(crate) fn new(passes: usize) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                turns: Turns::new(Duration::ZERO),
                free: passes,
                next: 0,
            })),
        }
    }

    /// Waits for this tenant's turn; dropping the future gives it up.
    pub(crate) async fn enter(&self, tenant: &str) -> Result<Pass, SandboxError> {
        let (pass, turn) = oneshot::channel();
        let id = self.lock().stand(tenant, pass);
        let _leave = Leave { gate: self, id };
        self.hand_out();
        turn.await
            .map_err(|_| SandboxError::host("the sandbox lost a tenant's turn"))
    }

    /// Gives free passes to those whose turn it is.
    fn hand_out(&self) {
        while let Some((tenant, waiter)) = self.take_turn() {
            let pass = Pass {
                held: Some((self.clone(), tenant, Instant::now())),
            };
            if let Err(mut unclaimed) = waiter.pass.send(pass)
                && let Some((_, tenant, _)) = unclaimed.held.take()
            {
                self.lock().give_back(&tenant, Duration::ZERO);
            }
        }
    }

    fn take_turn(&self) -> Option<(Arc<str>, Waiter)> {
        let mut inner = self.lock();
        let most = inner.free;
        let next = inner.turns.begin_below(most)?;
        inner.free -= 1;
        Some(next)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing inside can be left half-done by a panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn stand(&mut self, tenant: &str, pass: oneshot::Sender<Pass>) -> u64 {
        self.next += 1;
        let id = self.next;
        self.turns.push(tenant, Waiter { id, pass });
        id
    }

    fn give_back(&mut self, tenant: &str, time: Duration) {
        self.free += 1;
        self.turns.ran(tenant, time);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some((gate, tenant, since)) = self.held.take() {
            gate.lock().give_back(&tenant, since.elapsed());
            gate.hand_out();
        }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let left = self.gate.lock().turns.remove(|waiter| waiter.id == self.id);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// The pass that there is, or else nothing.
    fn now(gate: &Gate, tenant: &str) -> Option<Pass> {
        gate.enter(tenant).now_or_never().map(Result::unwrap)
    }

    #[tokio::test]
    async fn one_at_a_time_and_the_tenant_that_had_less_first() {
        let gate = Gate::new(1);
        let first = gate.enter("greedy").await.unwrap();
        let mut greedy = Box::pin(gate.enter("greedy"));
        let mut modest = Box::pin(gate.enter("modest"));
        assert!((&mut greedy).now_or_never().is_none());
        assert!((&mut modest).now_or_never().is_none());
        std::thread::sleep(Duration::from_millis(1));
        drop(first);
        assert!((&mut greedy).now_or_never().is_none());
        drop(modest.await.unwrap());
        drop(greedy.await.unwrap());
    }

    #[test]
    fn who_takes_all_it_can_leaves_as_many_as_it_has() {
        let gate = Gate::new(32);
        let most = |tenant: &str| std::iter::from_fn(|| now(&gate, tenant)).collect::<Vec<_>>();
        let first = most("first");
        let (second, third) = (most("second"), most("third"));
        assert_eq!([first.len(), second.len(), third.len()], [16, 8, 4]);
        let newcomer = now(&gate, "newcomer");
        assert!(newcomer.is_some());
        drop((second, third, newcomer));
        assert!(now(&gate, "first").is_none(), "it has what it leaves free");
        drop(first);
        assert_eq!(most("first").len(), 16);
    }

    #[tokio::test]
    async fn who_gives_up_holds_nobody_up_and_is_forgotten_at_once() {
        let gate = Gate::new(1);
        let first = gate.enter("a").await.unwrap();
        let mut gone = Box::pin(gate.enter("a"));
        assert!((&mut gone).now_or_never().is_none());
        assert_eq!(gate.lock().turns.iter().count(), 1);
        drop(gone);
        assert_eq!(gate.lock().turns.iter().count(), 0);
        let mut next = Box::pin(gate.enter("a"));
        assert!((&mut next).now_or_never().is_none());
        drop(first);
        assert!(next.now_or_never().is_some());
        assert!(now(&gate, "b").is_some());
    }
}
