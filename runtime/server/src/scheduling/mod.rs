//! Scheduling of extractions, profiles, listings and descriptions. Also contains the memory budget of the
//! host.

mod admission;
mod base;
mod room;
mod tensors;

pub(crate) use admission::{Admission, AdmissionPermit};
pub(crate) use base::BaseMemory;
pub(crate) use room::{MeteredRoom, TenantMemory, with_reservation};
pub(crate) use tensors::TensorMemory;

use crate::config::{HostConfig, stranger_bytes, upload_units};
use crate::refusal::Refusal;
use frostline_batching::{Budget, Kind, Memory, Standing};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{MutexGuard, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Concurrent calls of guests outside of extractions. A few are sufficient, since a regular guest answers in
/// microseconds.
const DESCRIPTIONS: usize = 8;

/// Concurrent listings. A listing occupies a thread while reading a folder, or waits for a store. A tenant
/// can use half of the permits, so a folder with a million files or many shards does not delay other tenants.
const LISTINGS: usize = 16;

/// Concurrent checks of uploaded models. Limited to one per tenant, so a tenant with many models does not
/// delay others.
const MODEL_CHECKS: usize = 2;

/// Queues and memory of the host.
pub(crate) struct Scheduling {
    /// Extractions and profile measurements.
    pub(crate) extractions: Arc<Admission>,
    /// Calls of guests outside of extractions. A tenant can have up to half of the permits.
    pub(crate) descriptions: Arc<Admission>,
    /// Listings of data. A tenant can have up to half of the permits.
    pub(crate) listings: Arc<Admission>,
    /// Checks of uploaded models, limited to one per tenant.
    pub(crate) model_checks: Arc<Admission>,
    /// Requests for profiles, limited to one per tenant.
    profiles: Arc<Admission>,
    /// Prevents concurrent measurements. The longest waiting request is next. It already has a permit to run, so
    /// extractions of other tenants cannot delay it further, and tenants take turns because of the limit of `profiles`.
    measuring: tokio::sync::Mutex<()>,
    /// Memory budget of the host and the lanes.
    pub(crate) memory: Memory,
    /// Memory for answers to clients without a token, which [`Budget::spare`] contains.
    strangers: Memory,
    /// Bytes of uploads in progress; [`upload_units`] converts bytes to permits.
    pub(crate) uploads: Arc<Semaphore>,
    /// Tasks that must finish before the host stops.
    pub(crate) work: TaskTracker,
    /// Cancels all running work.
    pub(crate) end: CancellationToken,
    /// True if the host shuts down.
    stopping: Mutex<bool>,
}

/// The right to measure, released on drop.
pub(crate) struct MeasurementTurn<'a> {
    // The drop order matters: first the next request measures, then the permits become free.
    _measuring: MutexGuard<'a, ()>,
    _running: AdmissionPermit,
    _queue_permit: AdmissionPermit,
    extractions: &'a Admission,
    /// Requested permits at the start, if no other extraction was running.
    requested_at_start: Option<u64>,
}

impl MeasurementTurn<'_> {
    /// True if other extractions were running or have been requested since the start.
    pub(crate) fn disturbed(&self) -> bool {
        self.requested_at_start != Some(self.extractions.requested())
    }
}

impl Scheduling {
    pub(crate) fn new(config: &HostConfig) -> Self {
        let work = TaskTracker::new();
        let queued = config.queued;
        Self {
            extractions: Admission::new("extractions", config.running, None, queued, work.clone()),
            descriptions: Admission::new(
                "descriptions",
                DESCRIPTIONS,
                Some(DESCRIPTIONS / 2),
                queued,
                work.clone(),
            ),
            listings: Admission::new("listings", LISTINGS, Some(LISTINGS / 2), queued, work.clone()),
            model_checks: Admission::new("uploaded models", MODEL_CHECKS, Some(1), queued, work.clone()),
            profiles: Admission::new("profiles", usize::MAX, Some(1), queued, work.clone()),
            measuring: tokio::sync::Mutex::default(),
            memory: Memory::new(config.limits.budget(config.memory_budget)),
            strangers: Memory::new(Budget {
                bytes: stranger_bytes(config.memory_budget),
                ..Budget::default()
            }),
            uploads: Arc::new(Semaphore::new(upload_units(config.limits.upload_bytes) as usize)),
            work,
            end: CancellationToken::new(),
            stopping: Mutex::new(false),
        }
    }

    /// Memory for answers to clients without a token, which is separate from the memory of tenants.
    pub(crate) fn strangers(&self) -> TenantMemory {
        TenantMemory::new(&self.strangers, "", Kind::Request)
    }

    /// Refuses new requests and queued extractions until [`undrain`](Self::undrain). Running requests finish.
    pub(crate) fn drain(&self) {
        self.extractions.drain();
    }

    /// Accepts requests again, unless the host shuts down.
    pub(crate) fn undrain(&self) {
        let stopping = self.stopping.lock();
        if !*stopping {
            self.extractions.resume();
        }
    }

    /// Drains the host for good.
    pub(crate) fn stop(&self) {
        let mut stopping = self.stopping.lock();
        *stopping = true;
        self.extractions.drain();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.extractions.is_draining()
    }

    /// Waits for a permit of `queue`, which is one of those in this struct.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if the queue is full, and [`Refusal::Stopping`] if the host drains.
    pub(crate) async fn enter(
        &self,
        queue: &Arc<Admission>,
        tenant: &str,
        allowed: Standing,
    ) -> Result<AdmissionPermit, Refusal> {
        if self.is_draining() {
            return Err(Refusal::Stopping);
        }
        queue.enter(tenant, allowed).await
    }

    /// Waits for the right to measure, up to `longest` if set. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if a queue is full or the time expires, and [`Refusal::Stopping`] if the
    /// host shuts down.
    pub(crate) async fn measurement_turn(
        &self,
        tenant: &str,
        allowed: Standing,
        longest: Option<Duration>,
    ) -> Result<MeasurementTurn<'_>, Refusal> {
        let turn = async {
            let queue_permit = self.profiles.enter(tenant, allowed).await?;
            let running = self.extractions.enter(tenant, allowed).await?;
            let measuring = self.measuring.lock().await;
            let extractions = &self.extractions;
            Ok(MeasurementTurn {
                _measuring: measuring,
                _running: running,
                _queue_permit: queue_permit,
                extractions,
                requested_at_start: (extractions.counts().running <= 1).then(|| extractions.requested()),
            })
        };
        let Some(longest) = longest else { return turn.await };
        timeout(longest, turn).await.map_err(|_| {
            let seconds = longest.as_secs();
            let message = format!(
                "the measurement did not start within {seconds} s because the host is busy; retry later, or continue without a profile"
            );
            Refusal::busy(message, self.profiles.retry_after(tenant))
        })?
    }
}
