use bytes::Bytes;
use frostline_tensor::OpError;

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

/// Reserves memory for decoding.
pub trait DecodeRoom: Send + Sync + 'static {
    /// Reserves `bytes` until the guard is dropped. It is called on the decoding thread and may block.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be reserved. The sample fails with this error.
    fn reserve(&self, bytes: u64) -> Result<Guard, OpError>;
}
