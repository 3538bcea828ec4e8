//! Disk space for uploads. The space for an upload is reserved in advance and released when the upload is
//! stored or refused.

use crate::caller::Caller;
use crate::config::upload_units;
use crate::refusal::Refusal;
use crate::service::Service;
use frostline_wire::QuotaKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Retry delay if the space for uploads is full.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Permit for a concurrent upload, and the tenant's upload space.
pub(super) struct TenantUploadSlot {
    permit: OwnedSemaphorePermit,
    room: Arc<Semaphore>,
}

/// Reserved disk space of an upload.
pub(super) struct UploadRoom {
    _held: Vec<OwnedSemaphorePermit>,
}

impl TenantUploadSlot {
    /// Acquires a slot for an upload of the caller.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::Busy`] if the tenant has too many concurrent uploads.
    pub(super) fn acquire(caller: &Caller) -> Result<Self, Refusal> {
        let tenant = caller.tenant();
        let permit = Arc::clone(&tenant.uploads).try_acquire_owned();
        Ok(Self {
            permit: permit.map_err(|_| {
            let message = format!(
                "{name} has {} concurrent uploads, its limit; retry later, or ask the operator to raise the quota (frostline admin quota \
                 set {name} uploads=<number>)",
                tenant.quota.get(QuotaKey::Uploads),
                name = tenant.name
            );
            Refusal::busy(message, RETRY_DELAY)
        })?,
            room: Arc::clone(&tenant.upload_room),
        })
    }
}

impl UploadRoom {
    /// Reserves space for `bytes`, first in the tenant's part and then in the host's. Tenants that wait for
    /// their own part do not delay other tenants.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::Busy`] if no space becomes available within the stall timeout.
    pub(super) async fn reserve(
        service: &Service,
        share: Option<TenantUploadSlot>,
        bytes: u64,
    ) -> Result<Self, Refusal> {
        let stall = service.config.limits.stall;
        let mut held = Vec::new();
        if let Some(TenantUploadSlot { permit, room }) = share {
            held.push(permit);
            held.push(acquire_bytes(&room, bytes, stall).await?);
        }
        held.push(acquire_bytes(&service.scheduling.uploads, bytes, stall).await?);
        Ok(Self { _held: held })
    }
}

async fn acquire_bytes(
    room: &Arc<Semaphore>,
    bytes: u64,
    limit: Duration,
) -> Result<OwnedSemaphorePermit, Refusal> {
    let reserve = Arc::clone(room).acquire_many_owned(upload_units(bytes));
    let reserved = timeout(limit, reserve)
        .await
        .map_err(|_| Refusal::busy("the host's space for uploads is full; retry later", RETRY_DELAY))?;
    reserved.map_err(|_| Refusal::Stopping)
}
