use bytes::Bytes;
use frostline_tensor::{BoxFuture, OpError};

/// A reservation, released on drop.
pub type Guard = Box<dyn Send + Sync>;

/// Bytes of an object, including the memory reservation for them.
pub struct ReservedBytes {
    /// Bytes of the object.
    pub bytes: Bytes,
    /// Reservation, released together with the bytes.
    pub guard: Option<Guard>,
}

impl From<Bytes> for ReservedBytes {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, guard: None }
    }
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reserves memory for decoding.
pub trait DecodeRoom: Send + Sync + 'static {
    /// Waits for `bytes`, which stay reserved until the guard is dropped. No decoding thread is occupied
    /// meanwhile.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be reserved. The sample fails with this error.
    fn reserve(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>>;
}
