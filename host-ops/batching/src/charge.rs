use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Account for the CPU time of threads, usually of a tenant. The default ignores the time, for work of the host
/// itself.
#[derive(Clone, Default)]
pub struct Charge(Option<Arc<dyn Fn(Duration) + Send + Sync>>);

impl Charge {
    /// Creates an account that passes each amount of CPU time to `spent`.
    pub fn new(spent: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(spent)))
    }

    /// Runs `work` and charges the CPU time of the calling thread, even if `work` panics.
    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let _bill = Bill {
            charge: self,
            from: thread_cpu(),
        };
        work()
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Charge").field(&self.0.is_some()).finish()
    }
}

/// Charges the CPU time of the thread on drop.
struct Bill<'a> {
    charge: &'a Charge,
    /// Thread CPU time at the start.
    from: Duration,
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        if let Some(spent) = &self.charge.0 {
            spent(thread_cpu().saturating_sub(self.from));
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
        let panics = || {
            busy();
            panic!("on purpose")
        };
        let ended = catch_unwind(AssertUnwindSafe(|| charge.measure(panics)));
        assert!(ended.is_err() && *total.lock() >= Duration::from_millis(10));
    }
}
