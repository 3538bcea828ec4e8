//! Scheduling of extractions, profiles, listings and descriptions. Also contains the memory budget of the
//! host.

mod admission;
mod base;
mod measuring;
mod room;
mod tensors;

pub(crate) use admission::{Admission, Permit};
pub(crate) use base::BaseMemory;
pub(crate) use measuring::MeasurementTurn;
pub(crate) use room::{MeteredRoom, TenantMemory, with_reservation};
pub(crate) use tensors::TensorMemory;

use crate::config::{HostConfig, stranger_bytes, upload_units};
use crate::refusal::Refusal;
use frostline_batching::{Budget, Kind, Memory, Standing};
use measuring::MeasurementQueue;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Concurrent calls of guests outside of extractions. A few are sufficient, since a regular guest answers in
/// microseconds.
const MAX_DESCRIPTIONS: usize = 8;

/// Concurrent listings. A listing occupies a thread while reading a folder, or waits for a store. A tenant
/// can use half of the permits, so a folder with a million files or many shards does not delay other tenants.
const MAX_LISTINGS: usize = 16;

/// Concurrent checks of uploaded models. Limited to one per tenant, so a tenant with many models does not
/// delay others.
const MODEL_CHECKS: usize = 2;

/// Queues and memory of the host.
pub(crate) struct Scheduling {
    /// Extractions and profile measurements.
    pub(crate) extractions: Arc<Admission>,
    /// Calls of guests outside of extractions.
    descriptions: Arc<Admission>,
    listings: Arc<Admission>,
    /// Checks of uploaded models.
    model_checks: Arc<Admission>,
    measurements: MeasurementQueue,
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

impl Scheduling {
    pub(crate) fn new(config: &HostConfig) -> Self {
        let work = TaskTracker::new();
        let queued = config.queued;
        Self {
            extractions: Admission::new("extractions", config.running, queued, work.clone()),
            descriptions: Admission::new("descriptions", MAX_DESCRIPTIONS, queued, work.clone()),
            listings: Admission::new("listings", MAX_LISTINGS, queued, work.clone()),
            model_checks: Admission::new("uploaded models", MODEL_CHECKS, queued, work.clone()),
            measurements: MeasurementQueue::new(Admission::new("profiles", usize::MAX, queued, work.clone())),
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

    /// Waits for a permit to call guests outside of an extraction. A tenant can have up to half of the
    /// permits.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if a queue is full, and [`Refusal::Stopping`] if the host shuts down.
    pub(crate) async fn description_permit(
        &self,
        tenant: &str,
        allowed: Standing,
    ) -> Result<Permit, Refusal> {
        self.enter(&self.descriptions, MAX_DESCRIPTIONS / 2, tenant, allowed)
            .await
    }

    /// Waits for a permit to list data. A tenant can have up to half of the permits.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if a queue is full, and [`Refusal::Stopping`] if the host shuts down.
    pub(crate) async fn listing_permit(&self, tenant: &str, allowed: Standing) -> Result<Permit, Refusal> {
        self.enter(&self.listings, MAX_LISTINGS / 2, tenant, allowed)
            .await
    }

    async fn enter(
        &self,
        admission: &Arc<Admission>,
        running: usize,
        tenant: &str,
        allowed: Standing,
    ) -> Result<Permit, Refusal> {
        if self.is_draining() {
            return Err(Refusal::Stopping);
        }
        admission.enter(tenant, Standing { running, ..allowed }).await
    }

    /// Waits for a permit to check an uploaded model. `queued` limits the waiting checks of the tenant.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if a queue is full, and [`Refusal::Stopping`] if the host shuts down.
    pub(crate) async fn model_check_permit(&self, tenant: &str, queued: usize) -> Result<Permit, Refusal> {
        self.enter(&self.model_checks, 1, tenant, Standing { running: 1, queued })
            .await
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
        let turn = self.measurements.acquire(&self.extractions, tenant, allowed);
        let Some(longest) = longest else { return turn.await };
        timeout(longest, turn)
            .await
            .map_err(|_| self.measurements.timed_out(tenant, longest))?
    }
}
