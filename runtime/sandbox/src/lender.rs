use frostline_tensor::OpError;
use std::fmt;
use std::sync::Arc;

/// Who lends memory for what guests make a host hold: tensors and their own linear memory.
pub trait Lender: Send + Sync + 'static {
    /// Lends `bytes` at once, or not at all.
    ///
    /// # Errors
    /// Why not; the host's own lack is marked as such.
    fn lend(&self, bytes: u64) -> Result<(), OpError>;

    /// So many lent bytes are free again.
    fn give_back(&self, bytes: u64);
}

/// Bytes lent, given back on drop.
pub(crate) struct Loan {
    lender: Option<Arc<dyn Lender>>,
    bytes: u64,
}

impl Loan {
    /// Nothing, of `lender` if there is one.
    pub(crate) fn of(lender: Option<Arc<dyn Lender>>) -> Self {
        Self { lender, bytes: 0 }
    }

    /// Borrows `more`.
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), OpError> {
        self.resize(self.bytes.saturating_add(more))
    }

    /// Makes it `bytes`.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<(), OpError> {
        if let Some(lender) = &self.lender {
            if bytes > self.bytes {
                lender.lend(bytes - self.bytes)?;
            } else {
                lender.give_back(self.bytes - bytes);
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(lender) = &self.lender {
            lender.give_back(self.bytes);
        }
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loan").field(&self.bytes).finish()
    }
}
