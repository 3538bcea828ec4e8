//! The host's memory as those see it that read, decode and compute for a tenant.

use crate::refusal::Refusal;
use bytes::Bytes;
use frostline_batching::{Grant, Kind, Memory, NoRoom, Reserved};
use frostline_images::DecodeRoom;
use frostline_objects::ReadRoom;
use frostline_tensor::{BoxFuture, OpError, OpErrorCode};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a read or a decode waits for memory. Both come free as soon as some other image is done; who waits for longer is told to come
/// back, well before the store's deadline.
const WAIT: Duration = Duration::from_secs(20);

/// When to come back who found no memory: what holds it is sent within seconds, or its client is slow.
const AGAIN: Duration = Duration::from_secs(2);

type Guard = Box<dyn Send + Sync>;

/// Memory of one kind, for one tenant.
#[derive(Clone)]
pub(crate) struct Room {
    memory: Memory,
    tenant: Arc<str>,
    kind: Kind,
}

impl Room {
    /// Of `tenant`; of nobody where the host does something for itself or for an admin.
    pub(crate) fn new(memory: &Memory, tenant: &str, kind: Kind) -> Self {
        Self {
            memory: memory.clone(),
            tenant: tenant.into(),
            kind,
        }
    }

    /// Waits for `bytes`, `longest` at most.
    ///
    /// # Errors
    /// [`Refusal::Memory`] at once for more than there can ever be, [`Refusal::Busy`].
    pub(crate) async fn wait(&self, bytes: u64, longest: Duration) -> Result<Reserved, Refusal> {
        let reserving = self.memory.reserve(&self.tenant, self.kind, bytes);
        match timeout(longest, reserving).await {
            Ok(Ok(reserved)) => Ok(reserved),
            Ok(Err(_)) | Err(_) => Err(self.refusal(bytes)),
        }
    }

    /// Waits for up to `samples` samples' memory, `longest` at most.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) async fn grant(
        &self,
        samples: usize,
        fixed: u64,
        each: u64,
        longest: Duration,
    ) -> Result<Grant, Refusal> {
        let granting = self.memory.grant(&self.tenant, samples, fixed, each);
        match timeout(longest, granting).await {
            Ok(Ok(grant)) => Ok(grant),
            Ok(Err(_)) | Err(_) => Err(self.refusal(fixed.saturating_add(each))),
        }
    }

    /// [`Self::wait`] for threads, with the error of an operation.
    ///
    /// # Errors
    /// [`OpError`], of the host unless there can never be so many.
    pub(crate) fn wait_blocking(&self, bytes: u64) -> Result<Reserved, OpError> {
        let reserved = self.memory.reserve_blocking(&self.tenant, self.kind, bytes, WAIT);
        reserved.map_err(|_| self.lack(bytes))
    }

    /// Takes `bytes` at once.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn take(&self, bytes: u64) -> Result<Reserved, Refusal> {
        let taken = self.memory.try_reserve(&self.tenant, self.kind, bytes);
        taken.map_err(|_| self.refusal(bytes))
    }

    /// What is said to who got no `bytes`.
    pub(crate) fn refusal(&self, bytes: u64) -> Refusal {
        let error = self.lack(bytes);
        let message = error.message;
        if error.host_caused {
            Refusal::busy(message, AGAIN)
        } else {
            Refusal::Memory { message }
        }
    }

    /// Why there are no `bytes`: there can never be so many, or there are not now.
    pub(crate) fn lack(&self, bytes: u64) -> OpError {
        let (most, room, budget) = self.memory.read(|ledger| {
            let room = ledger.room(self.kind);
            (ledger.most(self.kind), room, ledger.budget().bytes)
        });
        if bytes > most {
            let never = NoRoom {
                needed: bytes,
                most,
                budget,
            };
            return OpError::too_large(format!(
                "{never}; request less at once, or ask the operator to raise memory_budget"
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

impl ReadRoom for Room {
    fn enter(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        let room = self.clone();
        async move {
            let reserving = room.memory.reserve(&room.tenant, room.kind, bytes);
            match timeout(WAIT, reserving).await {
                Ok(Ok(reserved)) => Ok(Box::new(reserved) as Guard),
                Ok(Err(_)) | Err(_) => Err(room.lack(bytes)),
            }
        }
        .boxed()
    }

    fn keep(&self, bytes: u64) -> Option<Guard> {
        let reserved = self.memory.try_reserve(&self.tenant, Kind::Kept, bytes);
        reserved.ok().map(|reserved| Box::new(reserved) as Guard)
    }
}

impl DecodeRoom for Room {
    fn enter(&self, bytes: u64) -> Result<Guard, OpError> {
        self.wait_blocking(bytes)
            .map(|reserved| Box::new(reserved) as Guard)
    }
}

/// A piece of an answer, and what keeps it reserved.
struct Held {
    piece: Bytes,
    _memory: Arc<Reserved>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// The same bytes, which keep `memory` until they are dropped, wherever they wait by then.
pub(crate) fn holding(piece: Bytes, memory: &Arc<Reserved>) -> Bytes {
    let memory = Arc::clone(memory);
    Bytes::from_owner(Held {
        piece,
        _memory: memory,
    })
}
