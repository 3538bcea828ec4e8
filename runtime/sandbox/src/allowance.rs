use crate::breach::{Breach, Resource};
use crate::config::Limits;
use crate::lender::{Lender, Loan};
use crate::usage::Usage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What one extraction, or another request of a tenant, has used of its [`Limits`]; shared by its calls, which run at once.
#[derive(Debug)]
pub struct Allowance {
    limits: Limits,
    ended: Ended,
    lender: Option<Borrowed>,
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

/// Whom to tell.
struct Ended(Option<Box<dyn FnOnce(Usage) + Send + Sync>>);

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ended").field(&self.0.is_some()).finish()
    }
}

/// Where the memory comes from.
#[derive(Clone)]
struct Borrowed(Arc<dyn Lender>);

impl std::fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Borrowed")
    }
}

/// A sum that never passes its limit.
#[derive(Debug)]
struct Counter {
    resource: Resource,
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

/// Tensor bytes taken from an allowance, given back on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    counter: Arc<Counter>,
    bytes: u64,
    loan: Loan,
}

impl Allowance {
    /// An untouched allowance: make one for each extraction and pass it to all of its calls.
    pub fn new(limits: Limits) -> Arc<Self> {
        Self::with(limits, Ended(None), None)
    }

    /// One that tells `ended` what was used once the last call is over, also of those whose end nobody waited for.
    pub fn reporting(limits: Limits, ended: impl FnOnce(Usage) + Send + Sync + 'static) -> Arc<Self> {
        Self::with(limits, Ended(Some(Box::new(ended))), None)
    }

    /// The same, whose tensors and guests' memory `lender` lends.
    pub fn borrowing(
        limits: Limits,
        lender: Arc<dyn Lender>,
        ended: impl FnOnce(Usage) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with(limits, Ended(Some(Box::new(ended))), Some(Borrowed(lender)))
    }

    fn with(limits: Limits, ended: Ended, lender: Option<Borrowed>) -> Arc<Self> {
        let tensors = limits.tensor_bytes as u64;
        Arc::new(Self {
            limits,
            ended,
            lender,
            tensor_bytes: Arc::new(Counter::new(Resource::TensorBytes, tensors)),
            object_reads: Counter::new(Resource::ObjectReads, limits.object_reads),
            object_bytes: Counter::new(Resource::ObjectBytes, limits.object_bytes),
            output_bytes: Counter::new(Resource::OutputBytes, limits.output_bytes),
            log_bytes: Counter::new(Resource::LogBytes, limits.log_bytes),
            calls: AtomicU64::new(0),
            cpu_nanos: AtomicU64::new(0),
            compile_nanos: AtomicU64::new(0),
            memory_peak: AtomicU64::new(0),
        })
    }

    /// The limits it was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes of tensors alive now.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensor_bytes.used.load(Ordering::Relaxed)
    }

    /// What has been used so far, over all its calls; those that still run count with what they have used.
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

    /// A call of the guest begins.
    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Guest code has run for `cpu`.
    pub(crate) fn count_cpu(&self, cpu: Duration) {
        add(&self.cpu_nanos, cpu);
    }

    /// The compiler has worked for `time`.
    pub(crate) fn count_compiling(&self, time: Duration) {
        add(&self.compile_nanos, time);
    }

    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_nanos.load(Ordering::Relaxed))
    }

    /// An instance's linear memory is this large now.
    pub(crate) fn note_memory(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.memory_peak.fetch_max(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_output(&self, bytes: usize) -> Result<(), Breach> {
        self.output_bytes.take(bytes as u64)
    }

    pub(crate) fn charge_tensor(&self, bytes: usize) -> Result<Charge, Breach> {
        let bytes = bytes as u64;
        self.tensor_bytes.take(bytes)?;
        let mut charge = Charge {
            counter: Arc::clone(&self.tensor_bytes),
            bytes,
            loan: self.loan(),
        };
        charge.loan.resize(bytes).map_err(Breach::Lacked)?;
        Ok(charge)
    }

    /// Nothing yet, of whoever lends memory.
    pub(crate) fn loan(&self) -> Loan {
        Loan::of(self.lender.as_ref().map(|lender| Arc::clone(&lender.0)))
    }

    pub(crate) fn count_reads(&self, reads: usize) -> Result<(), Breach> {
        self.object_reads.take(reads as u64)
    }

    pub(crate) fn count_object_bytes(&self, bytes: usize) -> Result<(), Breach> {
        self.object_bytes.take(bytes as u64)
    }

    /// Object bytes that may still be read.
    pub(crate) fn object_bytes_left(&self) -> u64 {
        self.object_bytes
            .limit
            .saturating_sub(self.object_bytes.used.load(Ordering::Relaxed))
    }

    /// Whether a log line of `bytes` still fits.
    pub(crate) fn admits_log(&self, bytes: usize) -> bool {
        self.log_bytes.take(bytes as u64).is_ok()
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.0.take() {
            ended(self.usage());
        }
    }
}

fn add(nanos: &AtomicU64, time: Duration) {
    let more = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    nanos.fetch_add(more, Ordering::Relaxed);
}

impl Charge {
    /// Gives back what goes beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.counter.give_back(self.bytes - bytes);
        self.bytes = bytes;
        // Less is never refused.
        self.loan.resize(bytes).ok();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.counter.give_back(self.bytes);
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

    fn take(&self, amount: u64) -> Result<(), Breach> {
        let add = |used: u64| used.checked_add(amount).filter(|&sum| sum <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
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

    fn give_back(&self, amount: u64) {
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_lasts_as_long_as_it_lives() {
        let allowance = Allowance::new(Limits {
            tensor_bytes: 100,
            ..Limits::default()
        });
        let first = allowance.charge_tensor(60).unwrap();
        let refused = allowance.charge_tensor(41).unwrap_err();
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

    #[test]
    fn what_was_used_is_told_when_the_last_call_is_over() {
        let (tell, told) = std::sync::mpsc::channel();
        let allowance = Allowance::reporting(Limits::default(), move |usage| tell.send(usage).unwrap());
        let call = Arc::clone(&allowance);
        drop(allowance);
        assert!(told.try_recv().is_err());
        call.count_cpu(Duration::from_secs(2));
        call.count_compiling(Duration::from_secs(3));
        drop(call);
        let usage = told.try_recv().unwrap();
        assert_eq!((usage.cpu.as_secs(), usage.compiling.as_secs()), (2, 3));
    }

    #[test]
    fn what_does_not_fit_is_not_counted() {
        let allowance = Allowance::new(Limits {
            object_reads: 3,
            ..Limits::default()
        });
        assert!(allowance.count_reads(usize::MAX).is_err());
        assert!(allowance.count_reads(3).is_ok());
        assert!(allowance.count_reads(1).is_err());
    }
}
