use crate::ObjectError;
use crate::hedge::Pulse;
use bytes::Bytes;
use frostline_tensor::{BoxFuture, OpError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often a read that waits for memory is said to be alive, that nobody asks the store for it again.
const ALIVE: Duration = Duration::from_millis(200);

/// What is given back when it is dropped: a reservation.
pub type Guard = Box<dyn Send + Sync>;

/// Who lends memory to read objects into.
pub trait ReadRoom: Send + Sync + 'static {
    /// Waits for `bytes`, which are lent until the guard is dropped.
    ///
    /// # Errors
    /// Whatever refuses them; the read fails with it.
    fn enter(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>>;

    /// Lends `bytes` for what is kept in case it is asked for again; none where others need them.
    fn keep(&self, bytes: u64) -> Option<Guard>;
}

/// Where a store's reads go: into memory that somebody lends, or wherever there is some.
#[derive(Clone, Default)]
pub(crate) struct Room(pub(crate) Option<Arc<dyn ReadRoom>>);

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Room").field(&self.0.is_some()).finish()
    }
}

/// An object's bytes, and what keeps them reserved until the last of them is dropped.
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
    /// Memory for what is kept, if there is any.
    pub(crate) fn keep(&self, bytes: u64) -> Option<Guard> {
        match &self.0 {
            None => Some(Box::new(())),
            Some(room) => room.keep(bytes),
        }
    }

    /// Waits for memory of `bytes` to read `key` into. The store has answered by then, so its `pulse` goes on.
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

/// The bytes with what keeps them reserved.
pub(crate) fn lent(bytes: Bytes, guard: Option<Guard>) -> Bytes {
    match guard {
        None => bytes,
        Some(guard) => Bytes::from_owner(Lent { bytes, _guard: guard }),
    }
}
