use frostline_tensor::OpError;
use std::sync::Arc;

/// Source of memory for tensors and the linear memory of guests.
pub trait MemorySource: Send + Sync + 'static {
    /// Reserves either all of `bytes` or nothing.
    ///
    /// # Errors
    /// Returns a host-caused [`OpError`] if the host is out of memory.
    fn reserve(&self, bytes: u64) -> Result<(), OpError>;

    /// Releases `bytes` reserved bytes.
    fn release(&self, bytes: u64);
}

/// Reserved bytes, released on drop.
pub(crate) struct MemoryReservation {
    source: Option<Arc<dyn MemorySource>>,
    bytes: u64,
}

impl MemoryReservation {
    /// Creates an empty reservation. Without a source every reservation succeeds.
    pub(crate) fn empty(source: Option<Arc<dyn MemorySource>>) -> Self {
        Self { source, bytes: 0 }
    }

    pub(crate) fn grow(&mut self, more: u64) -> Result<(), OpError> {
        self.resize(self.bytes.saturating_add(more))
    }

    /// Grows or shrinks the reservation to `bytes`. Shrinking never fails.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<(), OpError> {
        if let Some(source) = &self.source {
            if bytes > self.bytes {
                source.reserve(bytes - self.bytes)?;
            } else {
                source.release(self.bytes - bytes);
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if let Some(source) = &self.source {
            source.release(self.bytes);
        }
    }
}
