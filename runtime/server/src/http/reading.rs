//! Deadline for clients to read an answer.

use frostline_batching::{Ledger, Memory};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum read rate in bytes per second. 8 Mbit/s is the slowest link that is useful to a trainer.
const RATE: u64 = 1 << 20;

/// Deadline to read the rows of an answer. The host holds memory for the rows until they are read.
///
/// A client that never reads is disconnected after the stall timeout. Without another limit, a client that
/// reads a little from time to time could hold a grant for hours. The deadline is therefore the stall timeout
/// plus the time to read the rows at [`RATE`]. After the deadline, the answer is late if another tenant waits
/// for memory. The same time after the extraction's own deadline, the answer is late in any case.
pub(super) struct ReadDeadline {
    memory: Memory,
    tenant: Arc<str>,
    stall: Duration,
    deadline: Instant,
    since: Instant,
    bytes: u64,
}

impl ReadDeadline {
    /// Creates the deadline for an answer to `tenant` with an extraction that ends by `deadline`.
    pub(super) fn new(memory: &Memory, tenant: &str, stall: Duration, deadline: Instant) -> Self {
        Self {
            memory: memory.clone(),
            tenant: tenant.into(),
            stall,
            deadline,
            since: Instant::now(),
            bytes: 0,
        }
    }

    /// Starts the deadline for the next `bytes` bytes.
    pub(super) fn restart(&mut self, bytes: u64) {
        (self.since, self.bytes) = (Instant::now(), bytes);
    }

    /// Returns true if the bytes should have been read by now.
    pub(super) fn is_late(&self) -> bool {
        let (now, enough) = (
            Instant::now(),
            self.stall + Duration::from_secs(self.bytes / RATE),
        );
        let wanted = || {
            self.memory
                .read(|ledger: &Ledger| ledger.is_wanted_by_others(&self.tenant))
        };
        now > self.since.max(self.deadline) + enough || now > self.since + enough && wanted()
    }
}
