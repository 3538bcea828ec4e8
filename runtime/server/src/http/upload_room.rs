//! Space for uploads: reserved before a byte is read, and held until an upload is stored or refused.

use crate::caller::Caller;
use crate::config::upload_units;
use crate::refusal::Refusal;
use crate::service::Service;
use frostline_wire::QuotaKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// When to come back to a host that has no room for an upload.
const LATER: Duration = Duration::from_secs(5);

/// The right to one of a tenant's uploads, and what they may fill together.
pub(super) struct TenantUploadSlot {
    permit: OwnedSemaphorePermit,
    room: Arc<Semaphore>,
}

/// What an upload holds.
pub(super) struct UploadRoom {
    _permit: Option<OwnedSemaphorePermit>,
    _share: Option<OwnedSemaphorePermit>,
    _room: OwnedSemaphorePermit,
}

impl TenantUploadSlot {
    /// # Errors
    /// [`Refusal::Busy`] where the tenant has as many uploads as it may.
    pub(super) fn acquire(caller: &Caller) -> Result<Self, Refusal> {
        let tenant = caller.tenant();
        let permit = Arc::clone(&tenant.uploads).try_acquire_owned();
        let full = |_| {
            let message = format!(
                "{name} has {} concurrent uploads, its limit; retry later, or ask the operator to raise the quota (frostline admin quota \
                 set {name} uploads=<number>)",
                tenant.allowed.get(QuotaKey::Uploads),
                name = tenant.name
            );
            Refusal::busy(message, LATER)
        };
        Ok(Self {
            permit: permit.map_err(full)?,
            room: Arc::clone(&tenant.upload_room),
        })
    }
}

impl UploadRoom {
    /// Reserves space for `bytes`, from the tenant's share first, so that a tenant that waits for its own share delays no other.
    ///
    /// # Errors
    /// [`Refusal::Busy`] where others fill it for too long.
    pub(super) async fn reserve(
        service: &Service,
        share: Option<TenantUploadSlot>,
        bytes: u64,
    ) -> Result<Self, Refusal> {
        let stall = service.config.limits.stall;
        let (permit, share) = match share {
            Some(TenantUploadSlot { permit, room }) => {
                (Some(permit), Some(acquire_bytes(&room, bytes, stall).await?))
            }
            None => (None, None),
        };
        Ok(Self {
            _permit: permit,
            _share: share,
            _room: acquire_bytes(&service.scheduling.uploads, bytes, stall).await?,
        })
    }
}

async fn acquire_bytes(
    room: &Arc<Semaphore>,
    bytes: u64,
    limit: Duration,
) -> Result<OwnedSemaphorePermit, Refusal> {
    let reserve = Arc::clone(room).acquire_many_owned(upload_units(bytes));
    let full = |_| Refusal::busy("the host's space for uploads is full; retry later", LATER);
    let reserved = timeout(limit, reserve).await.map_err(full)?;
    reserved.map_err(|_| Refusal::Stopping)
}
