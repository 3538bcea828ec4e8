use frostline_tensor::{DType, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TensorSpec {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl TensorSpec {
    /// Returns the size of the elements in bytes, or `usize::MAX` on overflow.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.bytes(self.dtype.size()).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
