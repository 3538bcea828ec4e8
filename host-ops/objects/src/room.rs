use crate::ObjectError;
use crate::hedge::Pulse;
use bytes::Bytes;
use frostline_tensor::{BoxFuture, OpError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Interval at which a read that waits for memory beats its pulse, so that it is not hedged.
const ALIVE: Duration = Duration::from_millis(200);

/// A reservation that is released on drop.
pub type Guard = Box<dyn Send + Sync>;

/// Provider of memory for reading objects.
pub trait ReadRoom: Send + Sync + 'static {
    /// Waits for `bytes` of memory, which stay reserved until the guard is dropped.
    ///
    /// # Errors
    /// Returns an error if the memory is refused. The read fails with that error.
    fn enter(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>>;

    /// Reserves `bytes` for data that is cached for later requests. Returns `None` if the memory is needed
    /// elsewhere.
    fn keep(&self, bytes: u64) -> Option<Guard>;
}

/// Memory for a store's reads: reserved through a [`ReadRoom`], or unaccounted if `None`.
#[derive(Clone, Default)]
pub(crate) struct Room(pub(crate) Option<Arc<dyn ReadRoom>>);

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Room").field(&self.0.is_some()).finish()
    }
}

/// Bytes of an object that stay reserved until the last of them is dropped.
struct Lent {
    bytes: Bytes,
    _guard: Guard,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// Reserves memory for cached data. Returns `None` if there is not enough.
    pub(crate) fn keep(&self, bytes: u64) -> Option<Guard> {
        match &self.0 {
            None => Some(Box::new(())),
            Some(room) => room.keep(bytes),
        }
    }

    /// Waits for `bytes` of memory to read `key` into. The store has already answered, so `pulse` keeps
    /// beating.
    pub(crate) async fn enter(
        &self,
        key: &str,
        bytes: u64,
        pulse: &Pulse,
    ) -> Result<Option<Guard>, ObjectError> {
        let Some(room) = &self.0 else { return Ok(None) };
        let mut entering = room.enter(bytes);
        loop {
            tokio::select! {
                entered = &mut entering => {
                    let no_room = |error| ObjectError::OutOfBudget { key: key.to_owned(), error };
                    return entered.map(Some).map_err(no_room);
                }
                () = sleep(ALIVE) => pulse.beat(),
            }
        }
    }
}

/// Attaches the reservation to the bytes.
pub(crate) fn lent(bytes: Bytes, guard: Option<Guard>) -> Bytes {
    match guard {
        None => bytes,
        Some(guard) => Bytes::from_owner(Lent { bytes, _guard: guard }),
    }
}
