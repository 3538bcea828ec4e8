//! The host's memory as those see it that read, decode and compute for a tenant.

use crate::refusal::Refusal;
use bytes::Bytes;
use frostline_batching::{Grant, Kind, Memory, OutOfBudget, Reserved};
use frostline_images::DecodeRoom;
use frostline_objects::ReadRoom;
use frostline_tensor::{BoxFuture, OpError, OpErrorCode};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a read or a decode waits for memory. Both come free as soon as some other image is done; who waits for longer is told to come
/// back, well before the store's deadline.
const TIMEOUT: Duration = Duration::from_secs(20);

/// When to come back who found no memory: what holds it is sent within seconds, or its client is slow.
const RETRY_AFTER: Duration = Duration::from_secs(2);

type Guard = Box<dyn Send + Sync>;

/// Memory of one kind, for one tenant.
#[derive(Clone)]
pub(crate) struct TenantMemory {
    ledger: Memory,
    tenant: Arc<str>,
    kind: Kind,
}

impl TenantMemory {
    /// Of `tenant`; of nobody where the host does something for itself or for an admin.
    pub(crate) fn new(memory: &Memory, tenant: &str, kind: Kind) -> Self {
        Self {
            ledger: memory.clone(),
            tenant: tenant.into(),
            kind,
        }
    }

    /// Reserves `bytes`, waiting up to `limit`.
    ///
    /// # Errors
    /// [`Refusal::Memory`] at once for more than there can ever be, [`Refusal::Busy`].
    pub(crate) async fn reserve(&self, bytes: u64, limit: Duration) -> Result<Reserved, Refusal> {
        let reserving = self.ledger.reserve(&self.tenant, self.kind, bytes);
        match timeout(limit, reserving).await {
            Ok(Ok(reserved)) => Ok(reserved),
            Ok(Err(_)) | Err(_) => Err(self.refusal(bytes)),
        }
    }

    /// Reserves memory for up to `samples` samples, waiting up to `limit`.
    ///
    /// # Errors
    /// As [`Self::reserve`].
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

    /// [`Self::reserve`] for threads, with the error of an operation.
    ///
    /// # Errors
    /// [`OpError`], of the host unless there can never be so many.
    pub(crate) fn reserve_blocking(&self, bytes: u64) -> Result<Reserved, OpError> {
        let reserved = self
            .ledger
            .reserve_blocking(&self.tenant, self.kind, bytes, TIMEOUT);
        reserved.map_err(|_| self.shortage(bytes))
    }

    /// Reserves `bytes` without waiting.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub(crate) fn try_reserve(&self, bytes: u64) -> Result<Reserved, Refusal> {
        let reserved = self.ledger.try_reserve(&self.tenant, self.kind, bytes);
        reserved.map_err(|_| self.refusal(bytes))
    }

    /// The refusal for `bytes` that could not be reserved.
    pub(crate) fn refusal(&self, bytes: u64) -> Refusal {
        let error = self.shortage(bytes);
        let message = error.message;
        if error.host_caused {
            Refusal::busy(message, RETRY_AFTER)
        } else {
            Refusal::Memory { message }
        }
    }

    /// Why `bytes` cannot be reserved: more than ever possible, or not now.
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
        OpError::of_host(
            OpErrorCode::TooLarge,
            format!(
                "the host is out of memory: {bytes} bytes requested, {room} free of a memory_budget of {budget}; retry later"
            ),
        )
    }
}

impl ReadRoom for TenantMemory {
    fn enter(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        let memory = self.clone();
        async move {
            let reserving = memory.ledger.reserve(&memory.tenant, memory.kind, bytes);
            match timeout(TIMEOUT, reserving).await {
                Ok(Ok(reserved)) => Ok(Box::new(reserved) as Guard),
                Ok(Err(_)) | Err(_) => Err(memory.shortage(bytes)),
            }
        }
        .boxed()
    }

    fn keep(&self, bytes: u64) -> Option<Guard> {
        let reserved = self.ledger.try_reserve(&self.tenant, Kind::Kept, bytes);
        reserved.ok().map(|reserved| Box::new(reserved) as Guard)
    }
}

impl DecodeRoom for TenantMemory {
    fn enter(&self, bytes: u64) -> Result<Guard, OpError> {
        self.reserve_blocking(bytes)
            .map(|reserved| Box::new(reserved) as Guard)
    }
}

/// A piece of an answer, and what keeps it reserved.
struct ReservedBytes {
    piece: Bytes,
    _memory: Arc<Reserved>,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// The same bytes, which keep `memory` until they are dropped, wherever they wait by then.
pub(crate) fn with_reservation(piece: Bytes, memory: &Arc<Reserved>) -> Bytes {
    let memory = Arc::clone(memory);
    Bytes::from_owner(ReservedBytes {
        piece,
        _memory: memory,
    })
}
