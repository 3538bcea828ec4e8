use crate::error::SandboxError;
use frostline_batching::Turns;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A few passes for long work; of those who wait, the tenant whose work has taken the least time is next.
#[derive(Clone)]
pub(crate) struct Gate {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    turns: Turns<oneshot::Sender<Pass>>,
    free: usize,
}

/// The right to work until dropped.
pub(crate) struct Pass {
    /// `None` when it never reached whoever asked.
    held: Option<(Gate, Arc<str>, Instant)>,
}

impl Gate {
    pub(crate) fn new(passes: usize) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                turns: Turns::new(Duration::ZERO),
                free: passes,
            })),
        }
    }

    /// Waits for this tenant's turn; dropping the future gives it up.
    pub(crate) async fn enter(&self, tenant: &str) -> Result<Pass, SandboxError> {
        let (sender, turn) = oneshot::channel();
        self.lock().turns.push(tenant, sender);
        self.hand_out();
        turn.await
            .map_err(|_| SandboxError::host("the sandbox lost a tenant's turn"))
    }

    /// Gives free passes to those whose turn it is.
    fn hand_out(&self) {
        while let Some((tenant, sender)) = self.take_turn() {
            let pass = Pass {
                held: Some((self.clone(), tenant, Instant::now())),
            };
            if let Err(mut unclaimed) = sender.send(pass)
                && let Some((_, tenant, _)) = unclaimed.held.take()
            {
                self.lock().give_back(&tenant, Duration::ZERO);
            }
        }
    }

    fn take_turn(&self) -> Option<(Arc<str>, oneshot::Sender<Pass>)> {
        let mut inner = self.lock();
        if inner.free == 0 {
            return None;
        }
        let next = inner.turns.begin()?;
        inner.free -= 1;
        Some(next)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing inside can be left half-done by a panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

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

    #[tokio::test]
    async fn who_gives_up_holds_nobody_up() {
        let gate = Gate::new(1);
        let first = gate.enter("a").await.unwrap();
        let mut gone = Box::pin(gate.enter("a"));
        assert!((&mut gone).now_or_never().is_none());
        drop(gone);
        let mut next = Box::pin(gate.enter("a"));
        assert!((&mut next).now_or_never().is_none());
        drop(first);
        assert!(next.now_or_never().is_some());
        assert!(gate.enter("b").now_or_never().is_some());
    }
}
