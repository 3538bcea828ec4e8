//! The columns of an extraction's answer, and how a stream's schema is held against them.

use crate::FrameError;
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Fields, Schema};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) const POSITION: &str = "position";
pub(crate) const ACTIVATION: &str = "activation";
pub(crate) const ERROR: &str = "error";

/// The canonical extension's name and, as JSON, its metadata. Written here because arrow-schema 60 spells
/// `permutation` differently from the specification and cannot read back its own text.
/// <https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor>
const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";

#[derive(Serialize, Deserialize)]
struct TensorMetadata {
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permutation: Option<Vec<usize>>,
}

/// What the `activation` column of an answer holds; the same for all its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFormat {
    /// The bytes of the object, as stored: split `none`.
    Object,
    /// `f32` of this shape per sample.
    F32(Vec<usize>),
    /// `u8` of this shape per sample: pixels before normalisation.
    U8(Vec<usize>),
}

impl std::fmt::Display for RowFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object => f.write_str("object bytes"),
            Self::F32(shape) => write!(f, "f32{shape:?}"),
            Self::U8(shape) => write!(f, "u8{shape:?}"),
        }
    }
}

impl RowFormat {
    /// Elements of one row; `None` for objects, whose sizes differ.
    ///
    /// # Errors
    /// [`FrameError::Format`] when Arrow cannot count them in 31 bits.
    pub fn width(&self) -> Result<Option<usize>, FrameError> {
        let (Self::F32(shape) | Self::U8(shape)) = self else {
            return Ok(None);
        };
        let elements = shape
            .iter()
            .try_fold(1_usize, |product, &side| product.checked_mul(side));
        match elements.filter(|&elements| i32::try_from(elements).is_ok()) {
            Some(0) => Err(FrameError::Format {
                shape: shape.clone(),
                reason: "it has no elements".to_owned(),
            }),
            Some(elements) => Ok(Some(elements)),
            None => Err(FrameError::Format {
                shape: shape.clone(),
                reason: "it has more than 2^31 - 1 elements".to_owned(),
            }),
        }
    }

    /// Bytes of one row; `None` for objects.
    ///
    /// # Errors
    /// As [`RowFormat::width`].
    pub fn row_bytes(&self) -> Result<Option<u64>, FrameError> {
        let element = if matches!(self, Self::F32(_)) { 4 } else { 1 };
        Ok(self.width()?.map(|width| width as u64 * element))
    }

    /// The Arrow schema of an answer with these rows.
    pub(crate) fn schema(&self) -> Result<Schema, FrameError> {
        let position = Field::new(POSITION, DataType::UInt32, false);
        let error = Field::new(ERROR, DataType::Struct(error_fields()), true);
        Ok(Schema::new(vec![position, self.activation_field()?, error]))
    }

    fn activation_field(&self) -> Result<Field, FrameError> {
        let (Self::F32(shape) | Self::U8(shape)) = self else {
            return Ok(Field::new(ACTIVATION, DataType::LargeBinary, true));
        };
        let metadata = TensorMetadata {
            shape: shape.clone(),
            permutation: None,
        };
        let metadata = serde_json::to_string(&metadata).map_err(FrameError::encode)?;
        Ok(
            Field::new(ACTIVATION, self.column_type()?, true).with_metadata(HashMap::from([
                (EXTENSION_TYPE_NAME_KEY.to_owned(), FIXED_SHAPE_TENSOR.to_owned()),
                (EXTENSION_TYPE_METADATA_KEY.to_owned(), metadata),
            ])),
        )
    }

    fn element_type(&self) -> DataType {
        if matches!(self, Self::F32(_)) {
            DataType::Float32
        } else {
            DataType::UInt8
        }
    }

    /// The storage type of the activation column.
    pub(crate) fn column_type(&self) -> Result<DataType, FrameError> {
        Ok(match self.width()? {
            None => DataType::LargeBinary,
            Some(width) => {
                let width = i32::try_from(width).map_err(FrameError::encode)?;
                DataType::FixedSizeList(Arc::new(Field::new_list_field(self.element_type(), false)), width)
            }
        })
    }

    /// Refuses a schema other than this format's. Names, types and the tensor's shape count; how a writer spelled its
    /// metadata does not.
    pub(crate) fn check(&self, schema: &Schema) -> Result<(), FrameError> {
        let expected = self.schema()?;
        if schema.fields().len() != expected.fields().len() {
            let detail = format!(
                "it has {} columns, it should have {}",
                schema.fields().len(),
                expected.fields().len()
            );
            return Err(FrameError::Malformed { detail });
        }
        for ((actual, wanted), column) in schema
            .fields()
            .iter()
            .zip(expected.fields())
            .zip([POSITION, ACTIVATION, ERROR])
        {
            let same = actual.name() == wanted.name() && actual.data_type() == wanted.data_type();
            if !same || (column == ACTIVATION && !self.same_shape(actual)) {
                let (expected, actual) = (describe(wanted), describe(actual));
                return Err(FrameError::Schema {
                    column,
                    expected,
                    actual,
                });
            }
        }
        Ok(())
    }

    /// Element sizes, in bytes, of the buffers a batch of these rows has, in the order of its columns. Validity bits and
    /// bytes count 1; a text or binary column is validity, offsets, bytes.
    pub(crate) fn element_sizes(&self) -> &'static [usize] {
        match self {
            Self::Object => &[1, 4, 1, 8, 1, 1, 1, 4, 1, 1, 4, 1],
            Self::F32(_) => &[1, 4, 1, 1, 4, 1, 1, 4, 1, 1, 4, 1],
            Self::U8(_) => &[1, 4, 1, 1, 1, 1, 1, 4, 1, 1, 4, 1],
        }
    }

    fn same_shape(&self, field: &Field) -> bool {
        let (Self::F32(shape) | Self::U8(shape)) = self else {
            return true;
        };
        let named = field.extension_type_name() == Some(FIXED_SHAPE_TENSOR);
        let metadata = field
            .extension_type_metadata()
            .map(serde_json::from_str::<TensorMetadata>);
        named
            && matches!(metadata, Some(Ok(tensor)) if tensor.shape == *shape && tensor.permutation.is_none())
    }
}

pub(crate) fn error_fields() -> Fields {
    Fields::from(vec![
        Field::new("code", DataType::Utf8, false),
        Field::new("text", DataType::Utf8, false),
    ])
}

fn describe(field: &Field) -> String {
    let metadata = field.extension_type_metadata();
    let text = format!(
        "{} of type {} {}",
        field.name(),
        field.data_type(),
        metadata.unwrap_or("")
    );
    text.trim_end().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_arrow_cannot_count_are_refused() {
        for shape in [vec![usize::MAX, 2], vec![1 << 16, 1 << 15], vec![3, 0]] {
            assert!(matches!(
                RowFormat::F32(shape).schema(),
                Err(FrameError::Format { .. })
            ));
        }
    }

    #[test]
    fn only_its_own_schema_passes() {
        let formats = [
            RowFormat::Object,
            RowFormat::F32(vec![2, 6]),
            RowFormat::F32(vec![3, 4]),
            RowFormat::U8(vec![2, 6]),
        ];
        for (i, left) in formats.iter().enumerate() {
            for (k, right) in formats.iter().enumerate() {
                assert_eq!(
                    left.check(&right.schema().unwrap()).is_ok(),
                    i == k,
                    "{left} against {right}"
                );
            }
        }
    }

    #[test]
    fn a_scalar_per_sample_is_one_element() {
        assert_eq!(RowFormat::F32(vec![]).width(), Ok(Some(1)));
        assert_eq!(RowFormat::F32(vec![2, 3]).row_bytes(), Ok(Some(24)));
        assert_eq!(RowFormat::U8(vec![2, 3]).row_bytes(), Ok(Some(6)));
        assert_eq!(RowFormat::Object.row_bytes(), Ok(None));
    }
}
