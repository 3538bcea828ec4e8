//! Blocking work for tenants, which ends when the client disconnects.

use crate::Charge;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Reason for a missing result of blocking work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// The caller dropped the future, or the process is shutting down.
    #[error("the work was cancelled")]
    Cancelled,
    /// The deadline has passed.
    #[error("deadline of {0:?} exceeded; retry later")]
    Deadline(Duration),
    /// The work panicked. Other work is not affected.
    #[error("the work panicked; report this bug with the host's log")]
    Panicked,
}

impl From<Unfinished> for io::Error {
    fn from(unfinished: Unfinished) -> Self {
        Self::other(unfinished)
    }
}

/// Tells blocking work when to end.
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    deadline: Duration,
    until: Instant,
}

impl Stop {
    /// Creates a condition that only ends the work after `deadline`.
    pub fn after(deadline: Duration) -> Self {
        Self {
            cancelled: Arc::default(),
            deadline,
            until: Instant::now() + deadline,
        }
    }

    /// Checks that the result is still wanted. Work calls this at least every few milliseconds, and returns the
    /// error. A call needs about 30 ns.
    ///
    /// # Errors
    /// Returns [`Unfinished`] if the caller has left or the deadline has passed.
    pub fn check(&self) -> Result<(), Unfinished> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Unfinished::Cancelled);
        }
        if Instant::now() >= self.until {
            return Err(Unfinished::Deadline(self.deadline));
        }
        Ok(())
    }
}

/// Cancels the work when the caller's future is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs blocking `work` for a tenant on a thread. This is the only way to occupy a thread for a tenant, apart
/// from the turns of a [`TurnPool`](crate::TurnPool).
///
/// `permit` contains all that entitles the work to run, such as permits, reservations and locks. It is released
/// when the work ends, not when the caller leaves. Dropping the future or reaching the deadline makes
/// [`Stop::check`] fail, and work that no thread has started never runs. CPU time is paid from `charge`, or else by
/// the payer of the current task. The function must be called inside of a Tokio runtime.
///
/// # Errors
/// Returns [`Unfinished`] if the deadline passes, even if the work does not notice it, or if the work panics.
pub fn run_blocking<T: Send + 'static>(
    permit: impl Send + 'static,
    deadline: Duration,
    charge: Charge,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> impl Future<Output = Result<T, Unfinished>> + Send {
    let stop = Stop::after(deadline);
    let cancel = CancelOnDrop(Arc::clone(&stop.cancelled));
    let charge = charge.or_current();
    #[expect(clippy::disallowed_methods, reason = "this function is the replacement")]
    let ended = timeout(
        deadline,
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            stop.check()?;
            Ok(charge.measure(|| work(&stop)))
        }),
    );
    async move {
        let _cancel = cancel;
        match ended.await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) if error.is_panic() => Err(Unfinished::Panicked),
            Ok(Err(_)) => Err(Unfinished::Cancelled),
            Err(_) => Err(Unfinished::Deadline(deadline)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use tokio::sync::Semaphore;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn work_ends_with_its_caller_and_keeps_the_permit_until_then() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let (begun, begins) = channel();
        let endless = move |stop: &Stop| {
            begun.send(()).unwrap();
            loop {
                if let Err(reason) = stop.check() {
                    return reason;
                }
                std::thread::yield_now();
            }
        };
        let work = run_blocking(permit, LONG, Charge::default(), endless);
        begins.recv().unwrap();
        assert_eq!(permits.available_permits(), 0);
        drop(work);
        // The thread returns the permit only when the work has ended.
        permits.acquire().await.unwrap().forget();
    }

    #[tokio::test]
    async fn work_that_ignores_its_deadline_does_not_delay_the_caller() {
        let (release, gate) = channel::<()>();
        let deadline = Duration::from_millis(1);
        let stuck = move |stop: &Stop| {
            let _ = gate.recv();
            stop.check()
        };
        let ended = run_blocking((), deadline, Charge::default(), stuck).await;
        assert_eq!(ended, Err(Unfinished::Deadline(deadline)));
        drop(release);
        let panics = |_: &Stop| panic!("on purpose");
        let ended = run_blocking((), LONG, Charge::default(), panics).await;
        assert_eq!(ended, Err::<(), _>(Unfinished::Panicked));
    }

    #[tokio::test]
    async fn work_without_an_account_is_paid_by_the_payer_of_the_task() {
        let account = || {
            let total: Arc<parking_lot::Mutex<Duration>> = Arc::default();
            let sum = Arc::clone(&total);
            (total, Charge::new(move |spent| *sum.lock() += spent))
        };
        let busy = |_: &Stop| {
            let until = crate::thread_cpu() + Duration::from_millis(5);
            while crate::thread_cpu() < until {}
        };
        let (tenant, payer) = account();
        let (other, named) = account();
        let work = async {
            run_blocking((), LONG, Charge::default(), busy).await.unwrap();
            run_blocking((), LONG, named, busy).await.unwrap();
            let spawned = async move { run_blocking((), LONG, Charge::default(), busy).await.unwrap() };
            tokio::spawn(Charge::current().pay_for(spawned)).await.unwrap();
        };
        payer.pay_for(work).await;
        assert!(*tenant.lock() >= Duration::from_millis(10) && *other.lock() >= Duration::from_millis(5));
        let before = *tenant.lock();
        run_blocking((), LONG, Charge::default(), busy).await.unwrap();
        assert_eq!(*tenant.lock(), before);
    }
}
