//! Measures the memory of the host's process that is not reserved, and reports it to the ledger.

use frostline_batching::{Kind, Memory};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Sampling interval: meanwhile a network of 1 Gbit/s brings 30 MB, which the budget's spare covers.
const INTERVAL: Duration = Duration::from_millis(250);

/// A decrease is applied by an eighth per sample: memory that is reserved but not used yet hides some of the base for a second.
const DECAY: u64 = 8;

/// A base that has grown by this fraction of the budget since the start consists of caches, which are evicted then.
const CACHE_FRACTION: u64 = 4;

/// The least time between two evictions.
const EVICTION_INTERVAL: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct BaseMemory {
    memory: Memory,
    /// The base before the first reservation.
    idle: u64,
    base: u64,
}

impl BaseMemory {
    /// Measures the base before anything is reserved.
    pub(crate) fn new(memory: Memory) -> Self {
        let idle = anonymous_bytes().unwrap_or(0);
        let base = Self {
            memory,
            idle,
            base: idle,
        };
        base.publish();
        base
    }

    /// Updates the base until `stop`, and calls `evict` when caches hold too much of the budget.
    pub(crate) async fn watch(mut self, stop: CancellationToken, evict: impl Fn() + Send) {
        let mut evicted = Instant::now();
        while tokio::time::timeout(INTERVAL, stop.cancelled()).await.is_err() {
            let Some(measured) = anonymous_bytes() else { return };
            self.update(measured);
            if self.caches_exceed() && evicted.elapsed() > EVICTION_INTERVAL {
                tracing::info!(
                    base = self.base,
                    "evicting caches: they hold a quarter of memory_budget"
                );
                evict();
                evicted = Instant::now();
            }
        }
    }

    fn caches_exceed(&self) -> bool {
        let budget = self.memory.read(|ledger| ledger.budget().bytes);
        self.base.saturating_sub(self.idle) > budget / CACHE_FRACTION
    }

    fn update(&mut self, measured: u64) {
        let here = [Kind::Kept, Kind::Request, Kind::Grant, Kind::Read, Kind::Decode];
        let reserved: u64 = self
            .memory
            .read(|ledger| here.iter().map(|kind| ledger.held(*kind)).sum());
        let unreserved = measured.saturating_sub(reserved).max(self.idle);
        self.base = unreserved + self.base.saturating_sub(unreserved) / DECAY * (DECAY - 1);
        self.publish();
    }

    fn publish(&self) {
        self.memory.set_base(self.base);
    }
}

/// Anonymous memory of this process, from /proc.
fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some((kib("RssAnon:")? + kib("RssShmem:").unwrap_or(0)) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_batching::Budget;

    #[test]
    fn what_is_measured_beyond_what_is_reserved_counts_at_once_and_goes_slowly() {
        let memory = Memory::new(Budget {
            bytes: 6400,
            ..Budget::default()
        });
        let mut base = BaseMemory {
            memory: memory.clone(),
            idle: 500,
            base: 500,
        };
        let updated = |base: &mut BaseMemory, measured| {
            base.update(measured);
            memory.read(frostline_batching::Ledger::base)
        };
        assert_eq!(updated(&mut base, 2500), 2500);
        let reserved = memory.try_reserve("a", Kind::Grant, 2000).unwrap();
        assert_eq!(updated(&mut base, 4500), 2500, "all of the grant is in use");
        let hidden = updated(&mut base, 2500);
        assert!(hidden < 2500 && hidden > 2000, "{hidden}");
        for _ in 0..100 {
            base.update(500);
        }
        assert!(base.base < 520, "{}", base.base);
        drop(reserved);
    }
}
