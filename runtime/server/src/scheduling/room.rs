//! Access to the memory budget for reading, decoding and computing on behalf of a tenant.

use crate::refusal::Refusal;
use bytes::Bytes;
use frostline_batching::{Charge, Grant, Kind, Memory, OutOfBudget, Reserved};
use frostline_images::DecodeRoom;
use frostline_objects::ReadRoom;
use frostline_tensor::{BoxFuture, OpError, OpErrorCode};
use futures::FutureExt;
use prometheus_client::metrics::counter::Counter;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum time that a read or a decode waits for memory. Memory becomes free as soon as another image is
/// finished. After this time the client is asked to retry, well before the deadline of the store.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(20);

/// Retry time if no memory is free. Usually memory is released within seconds, except if a client is slow.
const RETRY_AFTER: Duration = Duration::from_secs(2);

type Guard = Box<dyn Send + Sync>;

/// Reserves memory for a tenant and a purpose.
#[derive(Clone)]
pub(crate) struct TenantMemory {
    ledger: Memory,
    tenant: Arc<str>,
    kind: Kind,
}

impl TenantMemory {
    /// Creates access for `tenant`. Use the empty name for work of the host or of an admin.
    pub(crate) fn new(memory: &Memory, tenant: &str, kind: Kind) -> Self {
        Self {
            ledger: memory.clone(),
            tenant: tenant.into(),
            kind,
        }
    }

    /// Reserves `bytes` bytes, waiting up to `limit`.
    ///
    /// # Errors
    /// - Returns [`Refusal::Memory`] immediately if this many bytes can never be available.
    /// - Returns [`Refusal::Busy`] if they do not become available in time.
    pub(crate) async fn reserve(&self, bytes: u64, limit: Duration) -> Result<Reserved, Refusal> {
        let reserving = self.ledger.reserve(&self.tenant, self.kind, bytes);
        match timeout(limit, reserving).await {
            Ok(Ok(reserved)) => Ok(reserved),
            Ok(Err(_)) | Err(_) => Err(self.refusal(bytes)),
        }
    }

    /// Reserves memory for up to `samples` samples, with `fixed` bytes in total and `each` bytes per sample.
    /// Waits up to `limit`.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::reserve`].
    pub(crate) async fn grant(
        &self,
        samples: usize,
        fixed: u64,
        each: u64,
        limit: Duration,
    ) -> Result<Grant, Refusal> {
        let granting = self.ledger.grant(&self.tenant, samples, fixed, each);
        match timeout(limit, granting).await {
            Ok(Ok(grant)) => Ok(grant),
            Ok(Err(_)) | Err(_) => Err(self.refusal(fixed.saturating_add(each))),
        }
    }

    /// Same as [`Self::reserve`], for threads. Waits up to 20 seconds.
    ///
    /// # Errors
    /// Returns an [`OpError`]. The error is caused by the host, unless this many bytes can never be
    /// available.
    pub(crate) fn reserve_blocking(&self, bytes: u64) -> Result<Reserved, OpError> {
        let reserved = self
            .ledger
            .reserve_blocking(&self.tenant, self.kind, bytes, MEMORY_TIMEOUT);
        reserved.map_err(|_| self.shortage(bytes))
    }

    /// Reserves `bytes` bytes without waiting.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::reserve`].
    pub(crate) fn try_reserve(&self, bytes: u64) -> Result<Reserved, Refusal> {
        let reserved = self.ledger.try_reserve(&self.tenant, self.kind, bytes);
        reserved.map_err(|_| self.refusal(bytes))
    }

    /// Reserves `bytes` bytes for an object or an image, waiting up to 20 seconds.
    fn guard(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        let memory = self.clone();
        async move {
            let reserving = memory.ledger.reserve(&memory.tenant, memory.kind, bytes);
            match timeout(MEMORY_TIMEOUT, reserving).await {
                Ok(Ok(reserved)) => Ok(Box::new(reserved) as Guard),
                Ok(Err(_)) | Err(_) => Err(memory.shortage(bytes)),
            }
        }
        .boxed()
    }

    /// Returns the refusal for `bytes` bytes that could not be reserved.
    pub(crate) fn refusal(&self, bytes: u64) -> Refusal {
        let error = self.shortage(bytes);
        let message = error.message;
        if error.host_caused {
            Refusal::busy(message, RETRY_AFTER)
        } else {
            Refusal::Memory { message }
        }
    }

    /// Returns the reason why `bytes` bytes are not available: either never, or only at present.
    pub(crate) fn shortage(&self, bytes: u64) -> OpError {
        let (most, room, budget) = self.ledger.read(|ledger| {
            let room = ledger.room(self.kind);
            (ledger.most(self.kind), room, ledger.budget().bytes)
        });
        if bytes > most {
            let no_room = OutOfBudget {
                needed: bytes,
                most,
                budget,
            };
            return OpError::too_large(format!(
                "{no_room}; request less at once, or ask the operator to raise memory_budget"
            ));
        }
        OpError::from_host(
            OpErrorCode::TooLarge,
            format!(
                "the host is out of memory: {bytes} bytes requested, {room} available within memory_budget ({budget}); retry later"
            ),
        )
    }
}

/// Memory of a tenant for reads and listings, which counts the bytes read.
pub(crate) struct MeteredRoom {
    pub(crate) memory: TenantMemory,
    /// Counters of read bytes for the host and for the tenant.
    pub(crate) read: [Counter; 2],
    /// Account for the CPU time of threads that read for the tenant.
    pub(crate) charge: Charge,
}

impl ReadRoom for MeteredRoom {
    fn reserve(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        self.memory.guard(bytes)
    }

    fn try_reserve(&self, bytes: u64) -> Option<Guard> {
        let reserved = self.memory.ledger.try_cache(bytes);
        reserved.map(|reserved| Box::new(reserved) as Guard)
    }

    fn grow(&self, bytes: u64) -> Result<Guard, OpError> {
        let TenantMemory { ledger, tenant, kind } = &self.memory;
        let reserved = ledger.try_reserve(tenant, *kind, bytes);
        let reserved = reserved.map_err(|_| self.memory.shortage(bytes))?;
        Ok(Box::new(reserved))
    }

    fn count_read(&self, bytes: u64) {
        for counter in &self.read {
            counter.inc_by(bytes);
        }
    }

    fn charge(&self) -> Charge {
        self.charge.clone()
    }
}

impl DecodeRoom for TenantMemory {
    fn reserve(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        self.guard(bytes)
    }
}

/// Bytes of an answer with the reservation.
struct ReservedBytes {
    piece: Bytes,
    _memory: Arc<Reserved>,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// Attaches `memory` to the bytes, so the memory stays reserved until they are dropped.
pub(crate) fn with_reservation(piece: Bytes, memory: &Arc<Reserved>) -> Bytes {
    let memory = Arc::clone(memory);
    Bytes::from_owner(ReservedBytes {
        piece,
        _memory: memory,
    })
}
