//! Work in flight: batches and preparations.

use super::decision::Part;
use super::stages::StageId;
use std::sync::Arc;
use std::time::Duration;

/// A batch in flight.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) stage: StageId,
    pub(super) parts: Vec<Part>,
    pub(super) rows: usize,
    /// Bytes reserved; `for_run` is the part for the execution, excluding the session.
    pub(super) bytes: u64,
    pub(super) for_run: u64,
    /// True if the reservation is as large as memory allows.
    pub(super) uses_all_memory: bool,
    /// Bytes held by the lane when the execution starts, including the open session.
    pub(super) before: u64,
    pub(super) cold: bool,
    pub(super) open: bool,
    pub(super) since: Duration,
    /// Expected duration.
    pub(super) guess: Duration,
    /// Time for which the batch counts as short; zero if it is not known to be short.
    pub(super) short_for: Duration,
    pub(super) payers: Vec<Payer>,
}

impl Running {
    /// True if the batch is not known to be short, or has taken longer than short batches do.
    pub(super) fn is_long(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= self.short_for
    }
}

/// Payer for some rows of a batch.
#[derive(Debug, Clone)]
pub(super) struct Payer {
    pub(super) tenant: Arc<str>,
    pub(super) line: Arc<str>,
    pub(super) rows: usize,
}

/// A preparation in progress.
#[derive(Debug)]
pub(super) struct Preparing {
    pub(super) stage: StageId,
    pub(super) since: Duration,
    /// The tenant whose work item required the preparation first.
    pub(super) payer: Payer,
}
