//! The rule for slow clients.

use frostline_batching::{Ledger, Memory};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum rate of an exchange in bytes per second, 512 kbit/s. A host that waits for slower clients keeps
/// their memory for hours.
pub(super) const RATE: u32 = 64 << 10;

/// Delay of a client that sends a body or reads an answer: the time that the host waited, less the time that
/// the transferred bytes need at the minimum rate. A client is too slow if the delay exceeds the stall
/// timeout.
///
/// The time that an exchange waits for the client is therefore limited to the stall timeout (60 s) plus 1 s
/// per 64 KiB. Bytes that were transferred quickly do not permit a longer pause later.
#[derive(Debug)]
pub(super) struct Pace {
    rate: u32,
    delay: Duration,
}

impl Pace {
    /// Creates the pace of an exchange with a minimum rate in bytes per second.
    pub(super) fn at(rate: u32) -> Self {
        Self {
            rate,
            delay: Duration::ZERO,
        }
    }

    /// Records that the client transferred `bytes` bytes after the host waited for `waited`.
    pub(super) fn record(&mut self, waited: Duration, bytes: u64) {
        let needed = Duration::from_secs(bytes) / self.rate.max(1);
        self.delay = (self.delay + waited).saturating_sub(needed);
    }

    pub(super) fn delay(&self) -> Duration {
        self.delay
    }
}

/// Pace that rows must be read at while other tenants wait for memory, in bytes per second. 8 Mbit/s is the
/// slowest link that is useful to a trainer.
const RATE_UNDER_PRESSURE: u32 = 1 << 20;

/// Decides when rows of a tenant are dropped because other tenants wait for the memory.
pub(super) struct RowPace {
    memory: Memory,
    tenant: Arc<str>,
    stall: Duration,
    pace: Pace,
    /// Time at which the client received the last piece, while it reads that piece.
    handed: Option<Instant>,
}

impl RowPace {
    pub(super) fn new(memory: &Memory, tenant: &str, stall: Duration) -> Self {
        Self {
            memory: memory.clone(),
            tenant: tenant.into(),
            stall,
            pace: Pace::at(RATE_UNDER_PRESSURE),
            handed: None,
        }
    }

    /// Records that the client has room for another piece. Returns true if it is too slow and other tenants
    /// wait for memory.
    pub(super) fn is_late(&mut self) -> bool {
        let waited = self
            .handed
            .take()
            .map_or(Duration::ZERO, |handed| handed.elapsed());
        self.pace.record(waited, 0);
        let late = self.pace.delay() > self.stall;
        late && self
            .memory
            .read(|ledger: &Ledger| ledger.is_wanted_by_others(&self.tenant))
    }

    /// Records that the client received `bytes` bytes.
    pub(super) fn hand(&mut self, bytes: u64) {
        self.pace.record(Duration::ZERO, bytes);
        self.handed = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn transferred_bytes_reduce_the_delay_but_are_not_saved() {
        let mut pace = Pace::at(RATE);
        pace.record(10 * SECOND, 4 * u64::from(RATE));
        assert_eq!(pace.delay(), 6 * SECOND);
        pace.record(SECOND, 1000 * u64::from(RATE));
        assert_eq!(pace.delay(), Duration::ZERO);
        pace.record(SECOND, 0);
        assert_eq!(pace.delay(), SECOND);
        pace.record(SECOND, u64::MAX);
        assert_eq!(pace.delay(), Duration::ZERO);
    }
}
