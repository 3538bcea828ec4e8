//! Who runs and who waits: extractions, profiles and questions to guests; and the memory that all of them may hold.

mod admission;
mod base;
mod measuring;
mod room;
mod tensors;

pub(crate) use admission::{Admission, Permit};
pub(crate) use base::Base;
pub(crate) use measuring::Turn;
pub(crate) use room::{Room, holding};
pub(crate) use tensors::Tensors;

use crate::config::{HostConfig, upload_units};
use crate::refusal::Refusal;
use frostline_batching::{Memory, Standing};
use measuring::Measuring;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Requests at once that ask guests something outside of extractions: an honest one answers in microseconds, so a few are plenty.
const ASKING: usize = 8;

/// Listings at once. Each takes a thread while it walks a folder, or waits for a store; a tenant has half of them at most, so that one with a
/// folder of a million files, or shards to read through, keeps no other waiting.
const LISTING: usize = 16;

/// Models of strangers that are checked at once: one of a tenant's, so that the next tenant's waits for no queue of them.
const ADMITTING: usize = 2;

/// See the module.
pub(crate) struct Scheduling {
    /// Extractions, and whoever measures beside them.
    pub(crate) extractions: Arc<Admission>,
    /// Who asks guests something outside of extractions.
    asking: Arc<Admission>,
    /// Who lists data.
    listing: Arc<Admission>,
    /// Whose uploaded models are checked.
    admitting: Arc<Admission>,
    measuring: Measuring,
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
            asking: admission("descriptions", ASKING),
            listing: admission("listings", LISTING),
            admitting: admission("uploaded models", ADMITTING),
            measuring: Measuring::new(admission("profiles", usize::MAX)),
            memory: Memory::new(config.limits.budget(config.memory_budget)),
            uploads: Arc::new(Semaphore::new(upload_units(config.limits.upload_bytes) as usize)),
            work,
            end: CancellationToken::new(),
        }
    }

    /// Takes nothing new; what runs goes on to its end.
    pub(crate) fn stop(&self) {
        self.extractions.stop();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.extractions.stopped()
    }

    /// Waits for the tenant's turn to ask guests something outside of an extraction. Half of the permits is all that one may have.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn ask(&self, tenant: &str, allowed: Standing) -> Result<Permit, Refusal> {
        self.enter(&self.asking, ASKING / 2, tenant, allowed).await
    }

    /// Waits for the tenant's turn to list its data. Half of the permits is all that one may have.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn list(&self, tenant: &str, allowed: Standing) -> Result<Permit, Refusal> {
        self.enter(&self.listing, LISTING / 2, tenant, allowed).await
    }

    async fn enter(
        &self,
        admission: &Arc<Admission>,
        running: usize,
        tenant: &str,
        allowed: Standing,
    ) -> Result<Permit, Refusal> {
        if self.stopped() {
            return Err(Refusal::Stopping);
        }
        admission.enter(tenant, Standing { running, ..allowed }).await
    }

    /// Waits for the tenant's turn to have an uploaded model checked.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn admit(&self, tenant: &str, queued: usize) -> Result<Permit, Refusal> {
        self.enter(&self.admitting, 1, tenant, Standing { running: 1, queued })
            .await
    }

    /// Waits for the tenant's turn to measure, `longest` at most; dropping the future gives it up.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn measure(
        &self,
        tenant: &str,
        allowed: Standing,
        longest: Option<Duration>,
    ) -> Result<Turn<'_>, Refusal> {
        let turn = self.measuring.turn(&self.extractions, tenant, allowed);
        let Some(longest) = longest else { return turn.await };
        let late = |_| self.measuring.too_late(tenant, longest);
        timeout(longest, turn).await.map_err(late)?
    }
}
