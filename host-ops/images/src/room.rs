use bytes::Bytes;
use frostline_tensor::OpError;

/// What is given back when it is dropped: a reservation.
pub type Guard = Box<dyn Send + Sync>;

/// An object's bytes, and what keeps them reserved while they wait to be decoded.
pub struct Held {
    /// The object's.
    pub bytes: Bytes,
    /// Dropped together with them.
    pub guard: Option<Guard>,
}

impl From<Bytes> for Held {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, guard: None }
    }
}

/// Who lends memory to decode in.
pub trait DecodeRoom: Send + Sync + 'static {
    /// Reserves `bytes` until the guard is dropped; called on the decoding thread, which waits meanwhile.
    ///
    /// # Errors
    /// Whatever refuses them; the sample fails with it.
    fn enter(&self, bytes: u64) -> Result<Guard, OpError>;
}
