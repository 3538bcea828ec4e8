//! Queue for profile measurements.

use super::admission::{Admission, Permit};
use crate::refusal::Refusal;
use frostline_batching::Standing;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Grants the right to measure to a single request at a time. A waiting request already has a permit to run,
/// so extractions of other tenants cannot delay it further. Tenants take turns, because only one request per
/// tenant waits here.
pub(super) struct MeasurementQueue {
    /// Requests for profiles, limited to one per tenant.
    queue: Arc<Admission>,
    /// Prevents concurrent measurements. The longest waiting request is next.
    measuring: Mutex<()>,
}

/// The right to measure, released on drop.
pub(crate) struct MeasurementTurn<'a> {
    // The drop order matters: first the next request measures, then the permits become free.
    _measuring: MutexGuard<'a, ()>,
    _running: Permit,
    _queue_permit: Permit,
    extractions: &'a Admission,
    /// Requested permits at the start, if no other extraction was running.
    requested_at_start: Option<u64>,
}

impl MeasurementQueue {
    pub(super) fn new(queue: Arc<Admission>) -> Self {
        Self {
            queue,
            measuring: Mutex::default(),
        }
    }

    /// Waits for the right to measure, as one of the `extractions`. Dropping the future withdraws the
    /// request.
    ///
    /// # Errors
    /// Returns the same errors as [`Admission::enter`].
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
            _measuring: self.measuring.lock().await,
            _running: running,
            _queue_permit: line,
            extractions,
            requested_at_start: (extractions.counts().running <= 1).then(|| extractions.requested()),
        })
    }

    /// Returns the refusal for a request that waited until the timeout.
    pub(super) fn timed_out(&self, tenant: &str, waited: Duration) -> Refusal {
        let message = format!(
            "the measurement did not start within {} s because the host is busy; retry later, or continue without a profile",
            waited.as_secs()
        );
        Refusal::busy(message, self.queue.retry_after(tenant))
    }
}

impl MeasurementTurn<'_> {
    /// True if other extractions were running or have been requested since the start.
    pub(crate) fn disturbed(&self) -> bool {
        self.requested_at_start != Some(self.extractions.requested())
    }
}
