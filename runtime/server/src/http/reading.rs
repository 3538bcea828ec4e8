//! How fast a client is to read what the host holds for it.

use frostline_batching::{Ledger, Memory};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of an answer that are read in a second, at least: 8 Mbit/s, the slowest link that is of any use to a trainer.
const RATE: u64 = 1 << 20;

/// Rows of an answer that a client has begun to read, and whose memory is held until it has read them.
///
/// Who takes nothing is disconnected after the time a client may stall; who takes a little now and then would hold a grant for hours. So rows
/// may stay for that time and what [`RATE`] takes for them, unless nobody else waits for memory; and that long after the extraction's own time
/// in any case.
pub(super) struct ReadDeadline {
    memory: Memory,
    tenant: Arc<str>,
    stall: Duration,
    deadline: Instant,
    since: Instant,
    bytes: u64,
}

impl ReadDeadline {
    /// Of an answer to `tenant`, whose extraction is to end by the `deadline`.
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

    /// So many bytes are there to be read from now on.
    pub(super) fn restart(&mut self, bytes: u64) {
        (self.since, self.bytes) = (Instant::now(), bytes);
    }

    /// Whether they have been there for too long.
    pub(super) fn is_late(&self) -> bool {
        let (now, enough) = (
            Instant::now(),
            self.stall + Duration::from_secs(self.bytes / RATE),
        );
        let wanted = || {
            self.memory
                .read(|ledger: &Ledger| ledger.is_wanted_beside(&self.tenant))
        };
        now > self.since.max(self.deadline) + enough || now > self.since + enough && wanted()
    }
}
