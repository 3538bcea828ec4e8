//! Measures the memory of the host and its lanes that is not reserved, and reports it to the ledger.

use frostline_batching::{Kind, Memory};
use frostline_sandbox::release_free_memory;
use frostline_walls::StatusFile;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Sampling interval. During this time a network of 1 Gbit/s delivers 30 MB, which is less than the spare
/// part of the budget.
const INTERVAL: Duration = Duration::from_millis(250);

/// Divisor for decreases of the base. It decreases by an eighth of the difference per sample, because
/// reserved memory that is not yet in use hides a part of the base for a second.
const DECAY: u64 = 8;

/// Divisor of the budget for cached memory. If the base has grown further since the start, caches are
/// evicted.
const CACHE_FRACTION: u64 = 4;

/// Growth of the base in bytes beyond which free memory is returned to the system. The allocator retains some
/// memory after every burst of requests, and fresh memory is slower than retained memory.
const RETAINED: u64 = 32 << 20;

/// Minimum time between two returns, each of which takes milliseconds.
const RETURN_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two evictions.
const EVICTION_INTERVAL: Duration = Duration::from_secs(10);

/// Measured base of the process.
pub(crate) struct BaseMemory {
    memory: Memory,
    /// Base before the first reservation.
    idle: u64,
    base: u64,
}

impl BaseMemory {
    /// Measures the initial base. Call this function before the first reservation.
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

    /// Updates the base until `stop` is cancelled. `of_lanes` returns the bytes that lanes use beyond their
    /// reservations. Returns free memory to the system, and calls `evict` if caches use too much of the budget.
    pub(crate) async fn watch(
        mut self,
        stop: CancellationToken,
        of_lanes: impl Fn() -> u64 + Send,
        evict: impl Fn() + Send,
    ) {
        let mut returned = Instant::now();
        let mut evicted = returned;
        while tokio::time::timeout(INTERVAL, stop.cancelled()).await.is_err() {
            let Some(measured) = anonymous_bytes() else { return };
            self.update(measured, of_lanes());
            if self.base.saturating_sub(self.idle) > RETAINED && returned.elapsed() > RETURN_INTERVAL {
                release_free_memory();
                returned = Instant::now();
            }
            if self.caches_exceed() && evicted.elapsed() > EVICTION_INTERVAL {
                tracing::info!(
                    base = self.base,
                    "evicting caches, which use a quarter of memory_budget"
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

    fn update(&mut self, measured: u64, of_lanes: u64) {
        let here = [Kind::Cache, Kind::Request, Kind::Grant, Kind::Read, Kind::Decode];
        let reserved: u64 = self
            .memory
            .read(|ledger| here.iter().map(|kind| ledger.held(*kind)).sum());
        let unreserved = measured.saturating_sub(reserved).max(self.idle) + of_lanes;
        self.base = unreserved + self.base.saturating_sub(unreserved) / DECAY * (DECAY - 1);
        self.publish();
    }

    fn publish(&self) {
        self.memory.set_base(self.base);
    }
}

/// Returns the anonymous memory of this process according to `/proc`.
fn anonymous_bytes() -> Option<u64> {
    let usage = StatusFile::own().ok()?.read()?;
    Some(usage.anonymous + usage.shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_batching::Budget;

    #[test]
    fn the_base_grows_immediately_and_decays_slowly() {
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
            base.update(measured, 0);
            memory.read(frostline_batching::Ledger::base)
        };
        assert_eq!(updated(&mut base, 2500), 2500);
        let reserved = memory.try_reserve("a", Kind::Grant, 2000).unwrap();
        assert_eq!(updated(&mut base, 4500), 2500, "all of the grant is in use");
        let hidden = updated(&mut base, 2500);
        assert!(hidden < 2500 && hidden > 2000, "{hidden}");
        for _ in 0..100 {
            base.update(500, 0);
        }
        assert!(base.base < 520, "{}", base.base);
        drop(reserved);
        base.update(500, 3000);
        assert_eq!(base.base, 3500, "lanes use memory beyond their reservations");
    }
}
