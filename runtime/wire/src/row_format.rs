use crate::Values;
use std::fmt;

/// Format of the rows in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFormat {
    /// Raw object bytes, for the split `none`.
    Object,
    /// A tensor with this element type and shape per sample. Rows that the element type cannot represent use
    /// `f32`.
    Tensor(Values, Vec<usize>),
}

impl fmt::Display for RowFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object => f.write_str("object bytes"),
            Self::Tensor(values, shape) => write!(f, "{}{shape:?}", values.as_ref()),
        }
    }
}

impl RowFormat {
    /// Returns the shape of a row, or `None` for objects.
    pub fn shape(&self) -> Option<&[usize]> {
        match self {
            Self::Object => None,
            Self::Tensor(_, shape) => Some(shape),
        }
    }

    /// Returns the element type of a row, or `None` for objects.
    pub fn values(&self) -> Option<Values> {
        match self {
            Self::Object => None,
            Self::Tensor(values, _) => Some(*values),
        }
    }
}

impl Values {
    /// Returns the row format for samples of `shape` with this element type.
    pub const fn rows(self, shape: Vec<usize>) -> RowFormat {
        RowFormat::Tensor(self, shape)
    }
}
