use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

tokio::task_local! {
    /// Account that pays for the blocking work of the current task.
    static PAYER: Charge;
}

/// Account for the CPU time of threads, usually of a tenant. The default is the payer of the current task, see
/// [`pay_for`](Self::pay_for). Without one, the time is ignored, for work of the host itself.
#[derive(Clone, Default)]
pub struct Charge(Option<Arc<dyn Fn(Duration) + Send + Sync>>);

impl Charge {
    /// Creates an account that passes each amount of CPU time to `spent`.
    pub fn new(spent: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(spent)))
    }

    /// Makes this account the payer for blocking work of `future` that names no account. New tasks do not inherit
    /// the payer; pass [`current`](Self::current) on.
    pub async fn pay_for<F: Future>(self, future: F) -> F::Output {
        PAYER.scope(self, future).await
    }

    /// Returns the payer of the current task.
    pub fn current() -> Self {
        PAYER.try_with(Self::clone).unwrap_or_default()
    }

    /// Returns this account, or the payer of the current task.
    pub(crate) fn or_current(self) -> Self {
        match self.0 {
            Some(_) => self,
            None => Self::current(),
        }
    }

    /// Runs `work` and charges the CPU time of the calling thread since its last work, even if `work` panics. So
    /// the time that a thread needs to wake up and to wait is charged too, which is a third of all time if the
    /// work consists of single file operations. Must only be called on threads that run nothing else.
    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let _bill = Bill(self);
        work()
    }
}

thread_local! {
    /// CPU time of this thread that was charged before, whether to a tenant or to the host.
    static CHARGED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Charge").field(&self.0.is_some()).finish()
    }
}

/// Charges the CPU time of the thread on drop.
struct Bill<'a>(&'a Charge);

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        let now = thread_cpu();
        let before = CHARGED.replace(now);
        if let Some(spent) = &self.0.0 {
            spent(now.saturating_sub(before));
        }
    }
}

/// Returns the CPU time of the calling thread since it was started.
pub fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn work_is_charged_even_if_it_panics() {
        let total: Arc<Mutex<Duration>> = Arc::default();
        let sum = Arc::clone(&total);
        let charge = Charge::new(move |spent| *sum.lock() += spent);
        let busy = || {
            let until = thread_cpu() + Duration::from_millis(5);
            while thread_cpu() < until {}
        };
        charge.measure(busy);
        assert!(*total.lock() >= Duration::from_millis(5));
        busy();
        charge.measure(|| ());
        assert!(
            *total.lock() >= Duration::from_millis(10),
            "time between two works"
        );
        let panics = || {
            busy();
            panic!("on purpose")
        };
        let ended = catch_unwind(AssertUnwindSafe(|| charge.measure(panics)));
        assert!(ended.is_err() && *total.lock() >= Duration::from_millis(15));
    }
}
