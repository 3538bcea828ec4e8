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

/// Minimum growth of the base in bytes, and minimum growth as a fraction of the budget, that shorten the interval
/// between returns. A busy host that answers with large activations loses 2 to 4 % of its throughput if it
/// returns memory every second.
const FAST_GROWTH: u64 = 64 << 20;
const FAST_GROWTH_DIVISOR: u64 = 20;

/// Minimum time between two returns after fast growth, and otherwise. A return took 13 ms with 200,000 blocks in
/// 280 MB, during which other threads wait for memory.
const RETURN_INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

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
        let budget = self.memory.read(|ledger| ledger.budget().bytes);
        let mut returns = Returns {
            last: Instant::now(),
            lowest: self.base,
            fast_growth: FAST_GROWTH.max(budget / FAST_GROWTH_DIVISOR),
            was_busy: false,
        };
        let mut evicted = returns.last;
        while tokio::time::timeout(INTERVAL, stop.cancelled()).await.is_err() {
            let Some(measured) = anonymous_bytes() else { return };
            let reserved = self.update(measured, of_lanes());
            if returns.is_due(self.idle, self.base, reserved > 0, Instant::now()) {
                release_free_memory();
            }
            let grown = self.base.saturating_sub(self.idle);
            if grown > budget / CACHE_FRACTION && evicted.elapsed() > EVICTION_INTERVAL {
                tracing::info!(
                    base = self.base,
                    "evicting caches, which use a quarter of memory_budget"
                );
                evict();
                evicted = Instant::now();
            }
        }
    }

    /// Updates the base. Returns the bytes that requests use in this process.
    fn update(&mut self, measured: u64, of_lanes: u64) -> u64 {
        let of_requests = [Kind::Request, Kind::Grant, Kind::Read, Kind::Decode];
        let (cached, used): (u64, u64) = self.memory.read(|ledger| {
            let used = of_requests.iter().map(|kind| ledger.held(*kind)).sum();
            (ledger.held(Kind::Cache), used)
        });
        let unreserved = measured.saturating_sub(cached + used).max(self.idle) + of_lanes;
        self.base = unreserved + self.base.saturating_sub(unreserved) / DECAY * (DECAY - 1);
        self.publish();
        used
    }

    fn publish(&self) {
        self.memory.set_base(self.base);
    }
}

/// Schedule of returns of free memory to the system.
struct Returns {
    last: Instant,
    /// Lowest base in bytes since the last return.
    lowest: u64,
    /// Growth in bytes that shortens the interval.
    fast_growth: u64,
    /// True if there were requests since the last return.
    was_busy: bool,
}

impl Returns {
    /// True if free memory should be returned now, at `base`. Then the next interval begins. `busy` is true while
    /// there are requests: an idle host returns everything once, a busy host retains some.
    fn is_due(&mut self, idle: u64, base: u64, busy: bool, now: Instant) -> bool {
        self.lowest = self.lowest.min(base);
        self.was_busy |= busy;
        let [growing, otherwise] = RETURN_INTERVALS;
        let interval = if base - self.lowest > self.fast_growth {
            growing
        } else {
            otherwise
        };
        let has_finished = self.was_busy && !busy;
        let is_due = (has_finished || base.saturating_sub(idle) > RETAINED) && now >= self.last + interval;
        if is_due {
            self.last = now;
            self.lowest = base;
            self.was_busy = busy;
        }
        is_due
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
    fn free_memory_is_returned_while_the_base_grows_and_then_rarely() {
        let start = Instant::now();
        let idle = 10 << 20;
        let mut returns = Returns {
            last: start,
            lowest: idle,
            fast_growth: FAST_GROWTH,
            was_busy: true,
        };
        let mut is_due = |seconds, mebibytes: u64| {
            returns.is_due(idle, mebibytes << 20, true, start + Duration::from_secs(seconds))
        };
        assert!(!is_due(20, 42), "within the usual growth");
        assert!(is_due(20, 43));
        assert!(!is_due(20, 108) && is_due(21, 108), "it grows");
        assert!(!is_due(22, 108) && is_due(31, 108), "it stays");
        assert!(
            !is_due(32, 60) && !is_due(33, 124) && is_due(34, 125),
            "it grows from the lowest"
        );
        assert!(!is_due(60, 20));
        let mut is_due =
            |seconds, busy| returns.is_due(idle, 20 << 20, busy, start + Duration::from_secs(seconds));
        assert!(is_due(61, false), "the last request ended");
        assert!(!is_due(80, false), "everything was returned");
        assert!(!is_due(81, true) && is_due(82, false));
    }

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
