use crate::ObjectError;
use bytes::Bytes;
use frostline_batching::Charge;
use frostline_tensor::{BoxFuture, OpError};
use std::fmt;
use std::sync::Arc;

/// Reservation, released on drop.
pub type Guard = Box<dyn Send + Sync>;

/// Provider of memory for reads and listings, which also counts what is read.
pub trait ReadRoom: Send + Sync + 'static {
    /// Waits for `bytes` of memory, which stay reserved until the guard is dropped.
    ///
    /// # Errors
    /// Returns an error if the memory is refused. The read then fails with [`ObjectError::OutOfBudget`],
    /// which contains the error.
    fn reserve(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>>;

    /// Reserves `bytes` for data that is cached for later requests. Returns `None` if the memory is needed
    /// elsewhere.
    fn try_reserve(&self, bytes: u64) -> Option<Guard>;

    /// Reserves `bytes` more for data of unknown size, next to a reservation that is held. Does not wait, because
    /// two holders could wait for each other.
    ///
    /// # Errors
    /// Returns an error if the memory is not available now.
    fn grow(&self, bytes: u64) -> Result<Guard, OpError>;

    /// Counts `bytes` that arrived from the store, kept or not.
    fn count_read(&self, bytes: u64);

    /// Returns the account for the CPU time of threads that read for this user.
    fn charge(&self) -> Charge {
        Charge::default()
    }
}

/// Memory for a store's reads: reserved through a [`ReadRoom`], or unaccounted if `None`.
#[derive(Clone, Default)]
pub(crate) struct Room(pub(crate) Option<Arc<dyn ReadRoom>>);

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Room").field(&self.0.is_some()).finish()
    }
}

/// Object bytes with the memory reservation, which is released when all bytes are dropped.
struct ReservedBytes {
    bytes: Bytes,
    _guard: Guard,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// Reserves memory for cached data. Returns `None` if there is not enough.
    pub(crate) fn keep(&self, bytes: u64) -> Option<Guard> {
        match &self.0 {
            None => Some(Box::new(())),
            Some(room) => room.try_reserve(bytes),
        }
    }

    /// Counts `bytes` that arrived from the store.
    pub(crate) fn count_read(&self, bytes: u64) {
        if let Some(room) = &self.0 {
            room.count_read(bytes);
        }
    }

    /// Reserves `bytes` more for `key`, without waiting.
    ///
    /// # Errors
    /// Returns [`ObjectError::OutOfBudget`] if the memory is not available now.
    pub(crate) fn grow(&self, key: &str, bytes: u64) -> Result<Option<Guard>, ObjectError> {
        let grown = self.0.as_ref().map(|room| room.grow(bytes)).transpose();
        grown.map_err(|error| ObjectError::OutOfBudget {
            key: key.to_owned(),
            error,
        })
    }

    /// Waits for `bytes` of memory for reading `key`. Returns `None` without a [`ReadRoom`].
    ///
    /// # Errors
    /// Returns [`ObjectError::OutOfBudget`] if the memory is refused.
    pub(crate) async fn enter(&self, key: &str, bytes: u64) -> Result<Option<Guard>, ObjectError> {
        let Some(room) = &self.0 else { return Ok(None) };
        let entered = room.reserve(bytes).await;
        entered.map(Some).map_err(|error| ObjectError::OutOfBudget {
            key: key.to_owned(),
            error,
        })
    }
}

/// Attaches the reservation to the bytes.
pub(crate) fn lent(bytes: Bytes, guard: Option<Guard>) -> Bytes {
    match guard {
        None => bytes,
        Some(guard) => Bytes::from_owner(ReservedBytes { bytes, _guard: guard }),
    }
}
