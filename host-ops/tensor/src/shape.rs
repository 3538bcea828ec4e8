use serde::{Deserialize, Serialize};

/// Dimensions of a tensor, outermost first. All products are checked, because a shape from an untrusted
/// source may declare any size.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(Vec<usize>);

/// Error returned by operations on shapes and tensors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The number of elements or bytes overflows `usize`.
    #[error("shape {shape} has more elements than this machine can count")]
    Overflow {
        /// The declared shape.
        shape: Shape,
    },
    /// The number of elements in the data differs from the shape's.
    #[error("shape {shape} needs {expected} elements but the data has {actual}")]
    Length {
        /// The declared shape.
        shape: Shape,
        /// Elements that the shape needs.
        expected: usize,
        /// Elements in the data.
        actual: usize,
    },
    /// The operation needs a batch axis (the first axis), but the tensor has none.
    #[error("a scalar has no batch axis")]
    Scalar,
    /// Two tensors that should be joined differ in element type or row shape.
    #[error("cannot batch rows of {left} with rows of {right}")]
    Rows {
        /// Type and shape of the first tensor.
        left: String,
        /// Type and shape of the other tensor.
        right: String,
    },
    /// The requested rows are not within the batch.
    #[error("rows {start}..{end} are out of range for a batch of {rows}")]
    Range {
        /// First requested row.
        start: usize,
        /// End of the requested rows, exclusive.
        end: usize,
        /// Rows of the batch.
        rows: usize,
    },
    /// Memory for the elements could not be allocated.
    #[error("out of memory for a tensor of shape {shape}")]
    Memory {
        /// Shape of the tensor.
        shape: Shape,
    },
}

impl Shape {
    /// Returns a shape of the given dimensions, outermost first. No dimensions mean a scalar.
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Self(dims.into())
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Returns the product of the dimensions.
    pub fn elements(&self) -> Result<usize, ShapeError> {
        self.0
            .iter()
            .try_fold(1_usize, |product, &dim| product.checked_mul(dim))
            .ok_or_else(|| ShapeError::Overflow { shape: self.clone() })
    }

    /// Returns the bytes of a dense tensor of this shape with elements of `size` bytes.
    pub fn bytes(&self, size: usize) -> Result<usize, ShapeError> {
        self.elements()?
            .checked_mul(size)
            .ok_or_else(|| ShapeError::Overflow { shape: self.clone() })
    }

    /// Returns the first dimension: the number of rows in the batch.
    pub fn rows(&self) -> Result<usize, ShapeError> {
        self.0.first().copied().ok_or(ShapeError::Scalar)
    }

    /// Returns the shape of a row, which is all dimensions except the first.
    pub fn row(&self) -> Result<Self, ShapeError> {
        self.0
            .split_first()
            .map(|(_, rest)| Self(rest.to_vec()))
            .ok_or(ShapeError::Scalar)
    }

    /// Returns the shape of `rows` rows that each have this shape.
    pub fn batched(&self, rows: usize) -> Self {
        Self(std::iter::once(rows).chain(self.0.iter().copied()).collect())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<T: Into<Vec<usize>>> From<T> for Shape {
    fn from(dims: T) -> Self {
        Self::new(dims)
    }
}
