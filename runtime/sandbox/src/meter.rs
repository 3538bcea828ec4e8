//! Measures the CPU time of guest code with the clock of the executing thread.

use crate::allowance::Allowance;
use crate::breach::{Breach, Resource};
use frostline_batching::thread_cpu;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// CPU time of a call, in total and since the last call to the host.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    nanos: AtomicU64,
    slice_from: AtomicU64,
}

impl Meter {
    /// Starts a new slice of CPU time. Called when the guest calls the host.
    pub(crate) fn host_call(&self) {
        self.slice_from
            .store(self.nanos.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn add(&self, cpu: Duration) {
        let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn slice(&self) -> Duration {
        let from = self.slice_from.load(Ordering::Relaxed);
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed).saturating_sub(from))
    }

    fn check(&self, allowance: &Allowance) -> Result<(), Breach> {
        let limits = allowance.limits();
        check_cpu(
            Resource::CpuMillis,
            allowance.cpu(),
            Duration::from_secs(limits.cpu_seconds),
        )?;
        check_cpu(Resource::SliceMillis, self.slice(), limits.slice)
    }
}

/// Runs a guest call and counts CPU time. After a limit is exceeded, ends the call at the next interruption.
pub(crate) async fn metered<T>(
    meter: &Meter,
    allowance: Arc<Allowance>,
    call: impl Future<Output = wasmtime::Result<T>>,
) -> wasmtime::Result<T> {
    let mut call = pin!(call);
    let account = allowance.account();
    poll_fn(move |context| {
        if let Err(breach) = meter.check(&allowance) {
            return Poll::Ready(Err(wasmtime::Error::new(breach)));
        }
        let before = thread_cpu();
        let polled = account.measure(|| call.as_mut().poll(context));
        let cpu = thread_cpu().saturating_sub(before);
        meter.add(cpu);
        allowance.count_cpu(cpu);
        polled
    })
    .await
}

fn check_cpu(resource: Resource, used: Duration, allowed: Duration) -> Result<(), Breach> {
    if used <= allowed {
        return Ok(());
    }
    Err(Breach::Limit {
        resource,
        wanted: millis(used),
        allowed: millis(allowed),
    })
}

/// Returns whole milliseconds, rounded up so that an exceeded limit always looks exceeded.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;

    #[test]
    fn host_calls_reset_the_slice_but_not_the_total() {
        let allowance = Allowance::new(Limits {
            cpu_seconds: 10,
            slice: Duration::from_secs(3),
            ..Limits::default()
        });
        let meter = Meter::default();
        let run = |seconds| {
            meter.add(Duration::from_secs(seconds));
            allowance.count_cpu(Duration::from_secs(seconds));
            meter.check(&allowance)
        };
        assert_eq!(run(3), Ok(()));
        let limit = |resource, wanted, allowed| Breach::Limit {
            resource,
            wanted,
            allowed,
        };
        assert_eq!(run(1), Err(limit(Resource::SliceMillis, 4_000, 3_000)));
        meter.host_call();
        assert_eq!(run(3), Ok(()));
        meter.host_call();
        assert_eq!(run(3), Ok(()));
        meter.host_call();
        assert_eq!(run(1), Err(limit(Resource::CpuMillis, 11_000, 10_000)));
    }
}
