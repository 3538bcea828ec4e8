//! Who runs and who waits: extractions, profiles and questions to guests; and the memory that all of them may hold.

mod admission;
mod base;
mod measuring;
mod room;
mod tensors;

pub(crate) use admission::{Admission, Permit};
pub(crate) use base::BaseMemory;
pub(crate) use measuring::MeasurementTurn;
pub(crate) use room::{TenantMemory, with_reservation};
pub(crate) use tensors::TensorMemory;

use crate::config::{HostConfig, upload_units};
use crate::refusal::Refusal;
use frostline_batching::{Memory, Standing};
use measuring::MeasurementQueue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Requests at once that ask guests something outside of extractions: an honest one answers in microseconds, so a few are plenty.
const DESCRIPTIONS: usize = 8;

/// Listings at once. Each takes a thread while it walks a folder, or waits for a store; a tenant has half of them at most, so that one with a
/// folder of a million files, or shards to read through, keeps no other waiting.
const LISTINGS: usize = 16;

/// Models of strangers that are checked at once: one of a tenant's, so that the next tenant's waits for no queue of them.
const MODEL_CHECKS: usize = 2;

/// See the module.
pub(crate) struct Scheduling {
    /// Extractions, and whoever measures beside them.
    pub(crate) extractions: Arc<Admission>,
    /// Who asks guests something outside of extractions.
    descriptions: Arc<Admission>,
    /// Who lists data.
    listings: Arc<Admission>,
    /// Whose uploaded models are checked.
    model_checks: Arc<Admission>,
    measurements: MeasurementQueue,
    /// All memory that the host and its lanes may hold.
    pub(crate) memory: Memory,
    /// Bytes of uploads being received, in the units of [`upload_units`].
    pub(crate) uploads: Arc<Semaphore>,
    /// Everything that must be done before the host may go.
    pub(crate) work: TaskTracker,
    /// Ends what runs, wherever it is.
    pub(crate) end: CancellationToken,
}

impl Scheduling {
    pub(crate) fn new(config: &HostConfig) -> Self {
        let work = TaskTracker::new();
        let admission = |what, permits| Admission::new(what, permits, config.queued, work.clone());
        Self {
            extractions: admission("extractions", config.running),
            descriptions: admission("descriptions", DESCRIPTIONS),
            listings: admission("listings", LISTINGS),
            model_checks: admission("uploaded models", MODEL_CHECKS),
            measurements: MeasurementQueue::new(admission("profiles", usize::MAX)),
            memory: Memory::new(config.limits.budget(config.memory_budget)),
            uploads: Arc::new(Semaphore::new(upload_units(config.limits.upload_bytes) as usize)),
            work,
            end: CancellationToken::new(),
        }
    }

    /// Takes nothing new; what runs goes on to its end.
    pub(crate) fn drain(&self) {
        self.extractions.drain();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.extractions.is_draining()
    }

    /// Waits for the tenant's turn to ask guests something outside of an extraction. Half of the permits is all that one may have.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn description_permit(
        &self,
        tenant: &str,
        allowed: Standing,
    ) -> Result<Permit, Refusal> {
        self.enter(&self.descriptions, DESCRIPTIONS / 2, tenant, allowed)
            .await
    }

    /// Waits for the tenant's turn to list its data. Half of the permits is all that one may have.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn listing_permit(&self, tenant: &str, allowed: Standing) -> Result<Permit, Refusal> {
        self.enter(&self.listings, LISTINGS / 2, tenant, allowed).await
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

    /// Waits for the tenant's turn to have an uploaded model checked.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn model_check_permit(&self, tenant: &str, queued: usize) -> Result<Permit, Refusal> {
        self.enter(&self.model_checks, 1, tenant, Standing { running: 1, queued })
            .await
    }

    /// Waits for the tenant's turn to measure, `longest` at most; dropping the future gives it up.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn measurement_turn(
        &self,
        tenant: &str,
        allowed: Standing,
        longest: Option<Duration>,
    ) -> Result<MeasurementTurn<'_>, Refusal> {
        let turn = self.measurements.acquire(&self.extractions, tenant, allowed);
        let Some(longest) = longest else { return turn.await };
        let late = |_| self.measurements.timed_out(tenant, longest);
        timeout(longest, turn).await.map_err(late)?
    }
}
