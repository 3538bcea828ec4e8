//! Who measures next.

use super::admission::{Admission, Permit};
use crate::refusal::Refusal;
use frostline_batching::Standing;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// The right to measure, which one request at a time has. Who waits for it has a permit to run already, so it never waits for somebody
/// else's extractions; and since of each tenant one request waits for it, tenants take turns.
pub(super) struct MeasurementQueue {
    /// Tenants' profiles on their way, one of each.
    queue: Arc<Admission>,
    /// So that two profiles do not measure each other; goes to who has waited the longest.
    one: Mutex<()>,
}

/// Whoever measures now, until this is dropped.
pub(crate) struct MeasurementTurn<'a> {
    // They end in this order: the next one measures, then permits come free.
    _one: MutexGuard<'a, ()>,
    _running: Permit,
    _line: Permit,
    extractions: &'a Admission,
    /// How many had asked to run when it began, where nobody else was at work.
    requested_at_start: Option<u64>,
}

impl MeasurementQueue {
    pub(super) fn new(queue: Arc<Admission>) -> Self {
        Self {
            queue,
            one: Mutex::default(),
        }
    }

    /// Waits for a turn to measure, as one of the `extractions`; dropping the future gives it up.
    ///
    /// # Errors
    /// As [`Admission::enter`].
    pub(super) async fn acquire<'a>(
        &'a self,
        extractions: &'a Arc<Admission>,
        tenant: &str,
        allowed: Standing,
    ) -> Result<MeasurementTurn<'a>, Refusal> {
        let one = Standing {
            running: 1,
            ..allowed
        };
        let line = self.queue.enter(tenant, one).await?;
        let running = extractions.enter(tenant, allowed).await?;
        Ok(MeasurementTurn {
            _one: self.one.lock().await,
            _running: running,
            _line: line,
            extractions,
            requested_at_start: (extractions.standing().running <= 1).then(|| extractions.requested()),
        })
    }

    /// What is said to who would not wait longer.
    pub(super) fn timed_out(&self, tenant: &str, waited: Duration) -> Refusal {
        let message = format!(
            "the host was busy for {} s and could not start measuring; retry later, or continue without a profile",
            waited.as_secs()
        );
        Refusal::busy(message, self.queue.retry_after(tenant))
    }
}

impl MeasurementTurn<'_> {
    /// Whether anything else ran, or wanted to, since it began.
    pub(crate) fn disturbed(&self) -> bool {
        self.requested_at_start != Some(self.extractions.requested())
    }
}
