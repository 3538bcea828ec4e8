use frostline_tensor::{DType, Shape};
use serde::{Deserialize, Serialize};

/// Type and shape of a remote tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TensorSpec {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl TensorSpec {
    /// Returns the size of the elements in bytes, or `usize::MAX` on overflow.
    pub(super) fn bytes(&self) -> usize {
        self.shape.bytes(self.dtype.size()).unwrap_or(usize::MAX)
    }
}
