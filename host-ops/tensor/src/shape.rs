use serde::{Deserialize, Serialize};

/// The dimensions of a tensor, outermost first. Every product is checked: a shape from a stranger may claim anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(Vec<usize>);

/// A shape that does not fit what it is used for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The number of elements, or of bytes, does not fit this machine.
    #[error("shape {shape} has more elements than this machine can count")]
    Overflow {
        /// The shape as claimed.
        shape: Shape,
    },
    /// Data and shape disagree.
    #[error("shape {shape} wants {expected} elements but the data has {actual}")]
    Length {
        /// The shape as claimed.
        shape: Shape,
        /// Elements the shape stands for.
        expected: usize,
        /// Elements there are.
        actual: usize,
    },
    /// The operation needs a first axis, the batch.
    #[error("a scalar has no batch axis")]
    Scalar,
    /// Two tensors that should be joined differ in the shape of a row or in type.
    #[error("rows of {left} and {right} cannot stand in one batch")]
    Rows {
        /// The first row's description.
        left: String,
        /// The other row's.
        right: String,
    },
    /// Rows outside the batch were asked for.
    #[error("rows {start}..{end} lie outside a batch of {rows}")]
    Range {
        /// First row asked for.
        start: usize,
        /// One past the last.
        end: usize,
        /// Rows there are.
        rows: usize,
    },
    /// There is no memory for the elements.
    #[error("out of memory for a tensor of shape {shape}")]
    Memory {
        /// The shape.
        shape: Shape,
    },
}

impl Shape {
    /// A shape of these dimensions, outermost first; none means a scalar.
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Self(dims.into())
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The product of the dimensions.
    pub fn elements(&self) -> Result<usize, ShapeError> {
        self.0
            .iter()
            .try_fold(1_usize, |product, &dim| product.checked_mul(dim))
            .ok_or_else(|| ShapeError::Overflow { shape: self.clone() })
    }

    /// Bytes a dense tensor of this shape takes with elements of `size` bytes.
    pub fn bytes(&self, size: usize) -> Result<usize, ShapeError> {
        self.elements()?
            .checked_mul(size)
            .ok_or_else(|| ShapeError::Overflow { shape: self.clone() })
    }

    /// The first axis: how many rows the batch has.
    pub fn rows(&self) -> Result<usize, ShapeError> {
        self.0.first().copied().ok_or(ShapeError::Scalar)
    }

    /// The shape of one row: all but the first axis.
    pub fn row(&self) -> Result<Self, ShapeError> {
        self.0
            .split_first()
            .map(|(_, rest)| Self(rest.to_vec()))
            .ok_or(ShapeError::Scalar)
    }

    /// This shape as one row of a batch of `rows`.
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
