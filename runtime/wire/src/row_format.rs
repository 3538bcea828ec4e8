use crate::{TensorInfo, Values};
use frostline_tensor::DType;
use std::borrow::Cow;
use std::fmt;

/// Maximum number of tensors in a row. Joint cuts have up to the same number.
const MOST_TENSORS: usize = 8;

/// Maximum length of a tensor's name in bytes. With this limit, the schema of an answer is smaller than the overhead
/// that [`RowFormat::message_bytes`] allows for a message.
const LONGEST_NAME: usize = 1024;

/// Format of the rows in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFormat {
    /// Raw object bytes, for the split `none`.
    Object,
    /// A tensor with this element type and shape per sample. Rows that the element type cannot represent use
    /// `f32`.
    Tensor(Values, Vec<usize>),
    /// Tensors with separate columns, created by [`Values::rows_of`]. Writers receive them as one `f32` row, in which
    /// the flattened tensors follow each other in this order, and readers return the same row.
    Tensors(Vec<TensorFormat>),
}

/// Format of one of the tensors in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorFormat {
    /// Name of the tensor, which is part of the names of its columns.
    pub name: String,
    /// Element type in transit. Tensors whose values it cannot represent use `f32`.
    pub values: Values,
    /// Shape per sample.
    pub shape: Vec<usize>,
}

impl fmt::Display for RowFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object => f.write_str("object bytes"),
            Self::Tensor(values, shape) => write!(f, "{}{shape:?}", values.as_ref()),
            Self::Tensors(tensors) => {
                for (number, TensorFormat { name, values, shape }) in tensors.iter().enumerate() {
                    let separator = if number == 0 { "" } else { ", " };
                    write!(f, "{separator}{name} {}{shape:?}", values.as_ref())?;
                }
                Ok(())
            }
        }
    }
}

impl RowFormat {
    /// Returns the shape of a row for the writer and the reader, or `None` for objects.
    pub fn shape(&self) -> Option<Cow<'_, [usize]>> {
        match self {
            Self::Object => None,
            Self::Tensor(_, shape) => Some(Cow::Borrowed(shape)),
            Self::Tensors(_) => Some(Cow::Owned(vec![self.width().ok().flatten()?])),
        }
    }

    /// Returns true if each tensor of a row has separate columns.
    pub fn is_divided(&self) -> bool {
        matches!(self, Self::Tensors(_))
    }

    /// Returns true if writers send the elements of a row without a copy, apart from compression.
    pub fn is_zero_copy(&self) -> bool {
        match self {
            Self::Object => true,
            Self::Tensor(values, _) => !values.is_lossy(),
            Self::Tensors(_) => false,
        }
    }
}

impl Values {
    /// Returns the row format for samples of `shape` with this element type.
    pub const fn rows(self, shape: Vec<usize>) -> RowFormat {
        RowFormat::Tensor(self, shape)
    }

    /// Returns the row format for samples of `shape` that consist of `tensors`, flattened and concatenated in this order.
    /// Floating-point tensors use this element type. Integers are exact: bytes are sent as `u8`, and larger integers
    /// as `i32`.
    ///
    /// Returns the same as [`Values::rows`] for one floating-point tensor, for more than 8 tensors, and if `tensors` have
    /// names of more than 1,024 bytes or do not have as many elements as `shape`. Host and client thus agree on the
    /// format if they agree on `tensors`.
    pub fn rows_of(self, shape: Vec<usize>, tensors: &[TensorInfo]) -> RowFormat {
        let formats = tensors.iter().map(|tensor| TensorFormat {
            name: tensor.name.clone(),
            values: self.values_of(tensor.dtype),
            shape: tensor.shape.clone(),
        });
        let is_single = matches!(tensors, [tensor] if !is_integer(tensor.dtype));
        let is_named = tensors.iter().all(|tensor| tensor.name.len() <= LONGEST_NAME);
        if is_single || !is_named || tensors.len() > MOST_TENSORS {
            return self.rows(shape);
        }
        let divided = RowFormat::Tensors(formats.collect());
        match (divided.width(), self.rows(shape.clone()).width()) {
            (Ok(divided_width), Ok(width)) if divided_width == width => divided,
            _ => self.rows(shape),
        }
    }

    /// Returns the element type in transit of a tensor with elements of type `dtype`.
    const fn values_of(self, dtype: DType) -> Self {
        match dtype {
            DType::U8 => Self::U8,
            DType::I32 | DType::I64 => Self::I32,
            _ => self,
        }
    }
}

const fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I32 | DType::I64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dtype: DType, shape: &[usize]) -> TensorInfo {
        TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn integers_are_exact_in_each_encoding() {
        let tensors = [
            tensor("x", DType::F32, &[2, 3]),
            tensor("ids", DType::I64, &[4]),
            tensor("mask", DType::U8, &[4]),
        ];
        for (values, name) in [(Values::F32, "f32"), (Values::F16, "f16"), (Values::Int8, "int8")] {
            let format = values.rows_of(vec![14], &tensors);
            assert_eq!(
                format.to_string(),
                format!("x {name}[2, 3], ids i32[4], mask u8[4]")
            );
            assert_eq!(format.shape().as_deref(), Some(&[14][..]));
        }
    }

    #[test]
    fn one_tensor_and_inconsistent_ones_are_not_divided() {
        let x = tensor("x", DType::F32, &[2]);
        let ids = tensor("ids", DType::I64, &[2]);
        let huge = tensor("huge", DType::F32, &[usize::MAX]);
        let long = tensor(&"n".repeat(1025), DType::F32, &[1]);
        for (tensors, elements) in [
            (vec![], 2),
            (vec![x.clone()], 2),
            (vec![x.clone(), ids.clone()], 5),
            (vec![x.clone(), huge], 2),
            (vec![x.clone(), long], 3),
            (vec![x.clone(); 9], 18),
        ] {
            let format = Values::F16.rows_of(vec![elements], &tensors);
            assert_eq!(format, Values::F16.rows(vec![elements]), "{tensors:?}");
        }
        assert!(Values::F16.rows_of(vec![2], &[ids]).is_divided());
        assert!(Values::F16.rows_of(vec![16], &vec![x; 8]).is_divided());
    }
}
