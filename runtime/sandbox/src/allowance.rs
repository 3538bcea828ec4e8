use crate::breach::{Breach, Resource};
use crate::config::Limits;
use crate::error::SandboxError;
use crate::memory::{MemoryReservation, MemorySource};
use crate::usage::{Spent, Usage};
use frostline_batching::Charge as Account;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Overhead of a log line in bytes. Covers the labels and the timestamp.
const LOG_LINE: u64 = 128;

/// Counts the usage of a request against [`Limits`]. Concurrent calls of an extraction share the same
/// allowance.
pub struct Allowance {
    limits: Limits,
    on_spent: Option<Box<dyn Fn(Spent) + Send + Sync>>,
    memory_source: Option<Arc<dyn MemorySource>>,
    tensor_bytes: Arc<Counter>,
    object_reads: Counter,
    object_bytes: Counter,
    output_bytes: Counter,
    log_bytes: Counter,
    calls: AtomicU64,
    cpu_nanos: AtomicU64,
    compile_nanos: AtomicU64,
    memory_peak: AtomicU64,
}

/// Sum with an upper limit for [`Counter::acquire`].
struct Counter {
    resource: Resource,
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

/// Tensor bytes charged to an allowance, released on drop.
pub(crate) struct Charge {
    counter: Arc<Counter>,
    bytes: u64,
    reservation: MemoryReservation,
}

impl Allowance {
    /// Creates an allowance without a memory source. Create one per extraction and share it between the
    /// calls.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self::build(limits))
    }

    /// Creates an allowance that reserves the memory of tensors and guests from `memory_source`. `on_spent`
    /// is called whenever time is counted.
    pub fn with_memory(
        limits: Limits,
        memory_source: Arc<dyn MemorySource>,
        on_spent: impl Fn(Spent) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            on_spent: Some(Box::new(on_spent)),
            memory_source: Some(memory_source),
            ..Self::build(limits)
        })
    }

    fn build(limits: Limits) -> Self {
        let tensors = limits.tensor_bytes as u64;
        Self {
            limits,
            on_spent: None,
            memory_source: None,
            tensor_bytes: Arc::new(Counter::new(Resource::TensorBytes, tensors)),
            object_reads: Counter::new(Resource::ObjectReads, limits.object_reads),
            object_bytes: Counter::new(Resource::ObjectBytes, limits.object_bytes),
            output_bytes: Counter::new(Resource::OutputBytes, limits.output_bytes),
            log_bytes: Counter::new(Resource::LogBytes, limits.log_bytes),
            calls: AtomicU64::new(0),
            cpu_nanos: AtomicU64::new(0),
            compile_nanos: AtomicU64::new(0),
            memory_peak: AtomicU64::new(0),
        }
    }

    /// Limits of this allowance.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes of live tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensor_bytes.used.load(Ordering::Relaxed)
    }

    /// Usage of all calls so far, including running ones.
    pub fn usage(&self) -> Usage {
        Usage {
            calls: self.calls.load(Ordering::Relaxed),
            cpu: self.cpu(),
            compiling: Duration::from_nanos(self.compile_nanos.load(Ordering::Relaxed)),
            memory_peak: self.memory_peak.load(Ordering::Relaxed),
            tensor_bytes_peak: self.tensor_bytes.peak.load(Ordering::Relaxed),
            object_reads: self.object_reads.used.load(Ordering::Relaxed),
            object_bytes: self.object_bytes.used.load(Ordering::Relaxed),
            output_bytes: self.output_bytes.used.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.used.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts CPU time of guest code against the limit.
    pub(crate) fn count_cpu(&self, cpu: Duration) {
        add_duration(&self.cpu_nanos, cpu);
    }

    /// Returns the account for the CPU time of threads that run guest code, which includes starting and ending
    /// instances.
    pub(crate) fn account(self: &Arc<Self>) -> Account {
        let allowance = Arc::clone(self);
        Account::new(move |spent| allowance.report(Spent::Cpu(spent)))
    }

    pub(crate) fn count_compiling(&self, time: Duration) {
        add_duration(&self.compile_nanos, time);
        self.report(Spent::Compiling(time));
    }

    fn report(&self, spent: Spent) {
        if let Some(on_spent) = &self.on_spent {
            on_spent(spent);
        }
    }

    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_nanos.load(Ordering::Relaxed))
    }

    /// Records the size of an instance's linear memory.
    pub(crate) fn record_memory(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.memory_peak.fetch_max(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_output(&self, bytes: usize) -> Result<(), Breach> {
        self.output_bytes.acquire(bytes as u64)
    }

    pub(crate) fn charge_tensor(&self, bytes: usize) -> Result<Charge, Breach> {
        let bytes = bytes as u64;
        self.tensor_bytes.acquire(bytes)?;
        let mut charge = Charge {
            counter: Arc::clone(&self.tensor_bytes),
            bytes,
            reservation: self.reservation(),
        };
        charge.reservation.resize(bytes).map_err(Breach::NoMemory)?;
        Ok(charge)
    }

    /// Returns an empty reservation from the memory source.
    pub(crate) fn reservation(&self) -> MemoryReservation {
        MemoryReservation::empty(self.memory_source.clone())
    }

    /// Counts objects that the host reads for the extraction without a call of the guest.
    ///
    /// # Errors
    /// Returns [`SandboxError::Limit`] if the number of reads exceeds the limit.
    pub fn read_objects(&self, count: usize) -> Result<(), SandboxError> {
        Ok(self.count_reads(count)?)
    }

    /// Counts bytes that the host has read for the extraction, including bytes beyond the limit.
    pub fn record_object_bytes(&self, bytes: u64) {
        self.object_bytes.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Checks the bytes that the host has read for the extraction.
    ///
    /// # Errors
    /// Returns [`SandboxError::Limit`] if they exceed the limit.
    pub fn check_object_bytes(&self) -> Result<(), SandboxError> {
        Ok(self.count_object_bytes(0)?)
    }

    pub(crate) fn count_reads(&self, reads: usize) -> Result<(), Breach> {
        self.object_reads.acquire(reads as u64)
    }

    pub(crate) fn count_object_bytes(&self, bytes: usize) -> Result<(), Breach> {
        self.object_bytes.acquire(bytes as u64)
    }

    /// Object bytes that may still be read.
    pub(crate) fn object_bytes_remaining(&self) -> u64 {
        self.object_bytes
            .limit
            .saturating_sub(self.object_bytes.used.load(Ordering::Relaxed))
    }

    /// Counts a log line of `bytes` bytes plus [`LOG_LINE`]. Returns false if the line exceeds the limit and
    /// must be dropped.
    pub(crate) fn count_log(&self, bytes: usize) -> bool {
        self.log_bytes.acquire(bytes as u64 + LOG_LINE).is_ok()
    }
}

fn add_duration(nanos: &AtomicU64, time: Duration) {
    let more = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    nanos.fetch_add(more, Ordering::Relaxed);
}

impl Charge {
    /// Reduces the charge to `bytes`. Does nothing if it is smaller already.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.counter.release(self.bytes - bytes);
        self.bytes = bytes;
        // Shrinking cannot fail.
        self.reservation.resize(bytes).ok();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.counter.release(self.bytes);
    }
}

impl Counter {
    const fn new(resource: Resource, limit: u64) -> Self {
        Self {
            resource,
            limit,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    fn acquire(&self, amount: u64) -> Result<(), Breach> {
        match self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(amount).filter(|&sum| sum <= self.limit)
            }) {
            Ok(used) => {
                self.peak
                    .fetch_max(used.saturating_add(amount), Ordering::Relaxed);
                Ok(())
            }
            Err(used) => Err(Breach::Limit {
                resource: self.resource,
                wanted: used.saturating_add(amount),
                allowed: self.limit,
            }),
        }
    }

    fn release(&self, amount: u64) {
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::OpError;

    #[test]
    fn dropping_a_charge_releases_its_bytes() {
        let allowance = Allowance::new(Limits {
            tensor_bytes: 100,
            ..Limits::default()
        });
        let first = allowance.charge_tensor(60).unwrap();
        let refused = allowance.charge_tensor(41).err().unwrap();
        assert_eq!(
            refused,
            Breach::Limit {
                resource: Resource::TensorBytes,
                wanted: 101,
                allowed: 100
            }
        );
        drop(first);
        let mut all = allowance.charge_tensor(100).unwrap();
        all.shrink_to(30);
        assert_eq!(allowance.tensor_bytes(), 30);
        assert_eq!(allowance.usage().tensor_bytes_peak, 100);
    }

    struct Endless;

    impl MemorySource for Endless {
        fn reserve(&self, _: u64) -> Result<(), OpError> {
            Ok(())
        }

        fn release(&self, _: u64) {}
    }

    #[test]
    fn spending_is_reported_immediately() {
        let (sender, told) = std::sync::mpsc::channel();
        let allowance = Allowance::with_memory(Limits::default(), Arc::new(Endless), move |spent| {
            sender.send(spent).unwrap();
        });
        allowance.account().measure(|| ());
        assert!(matches!(told.try_recv(), Ok(Spent::Cpu(_))));
        allowance.count_compiling(Duration::from_secs(3));
        assert_eq!(told.try_recv(), Ok(Spent::Compiling(Duration::from_secs(3))));
    }

    #[test]
    fn empty_log_lines_are_charged_too() {
        let allowance = Allowance::new(Limits {
            log_bytes: 10 * LOG_LINE + 14,
            ..Limits::default()
        });
        assert!(allowance.count_log(14));
        let lines = (0..200_000).filter(|_| allowance.count_log(0));
        assert_eq!(lines.count(), 9);
    }

    #[test]
    fn host_reads_beyond_the_limit_are_reported() {
        let allowance = Allowance::new(Limits {
            object_bytes: 10,
            ..Limits::default()
        });
        allowance.record_object_bytes(10);
        assert!(allowance.check_object_bytes().is_ok());
        allowance.record_object_bytes(1);
        let error = allowance.check_object_bytes().unwrap_err().to_string();
        assert!(error.contains("11 B of 10 B"), "{error}");
        assert_eq!(allowance.object_bytes_remaining(), 0);
    }

    #[test]
    fn refused_amounts_are_not_counted() {
        let allowance = Allowance::new(Limits {
            object_reads: 3,
            ..Limits::default()
        });
        assert!(allowance.count_reads(usize::MAX).is_err());
        assert!(allowance.count_reads(3).is_ok());
        assert!(allowance.count_reads(1).is_err());
    }
}
