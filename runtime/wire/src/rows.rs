//! Columns of answers, and validation of schemas.

use crate::{FrameError, RowFormat, Values};
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Fields, Schema};
use frostline_tensor::{OpError, OpErrorCode, Shape};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) const POSITION: &str = "position";
pub(crate) const ACTIVATION: &str = "activation";
pub(crate) const SCALE: &str = "scale";
pub(crate) const OFFSET: &str = "offset";
pub(crate) const EXACT: &str = "exact";
pub(crate) const ERROR: &str = "error";
pub(crate) const CHECKSUM: &str = "checksum";

/// Minimum number of elements for a slice with a separate scale. For smaller slices, the scales would add too
/// many bytes.
const SLICE: usize = 64;

/// Maximum size of an error's code and message in bytes, including Arrow's overhead per row.
const ROW_OVERHEAD: u64 = 2 << 10;

/// Maximum overhead of an Arrow message in bytes.
const MESSAGE_OVERHEAD: u64 = 64 << 10;

/// Name of the canonical extension type. This module writes its metadata, because arrow-schema 60 uses a
/// different name for `permutation` than the specification and cannot read its own output.
/// <https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor>
const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";

#[derive(Serialize, Deserialize)]
struct TensorMetadata {
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permutation: Option<Vec<usize>>,
}

impl RowFormat {
    /// Returns the number of elements in a row, or `None` for objects, which differ in size.
    ///
    /// # Errors
    /// Returns [`FrameError::Format`] if the number is 0 or exceeds 31 bits.
    pub fn width(&self) -> Result<Option<usize>, FrameError> {
        let Some(shape) = self.shape() else {
            return Ok(None);
        };
        let elements = Shape::new(shape).elements().ok();
        let reason = match elements.filter(|&elements| i32::try_from(elements).is_ok()) {
            Some(0) => "there are no elements",
            Some(elements) => return Ok(Some(elements)),
            None => "there are more than 2^31 - 1 elements",
        };
        Err(FrameError::Format {
            shape: shape.to_vec(),
            reason: reason.to_owned(),
        })
    }

    /// Returns the number of slices per row. Each slice has a scale and an offset. Slices correspond to the
    /// first axis (channels, tokens) if each has at least 64 elements. Otherwise, the whole row is a slice.
    pub fn slices(&self) -> usize {
        match self.shape() {
            Some([first, rest @ ..]) if Shape::new(rest).elements().unwrap_or(usize::MAX) >= SLICE => *first,
            _ => 1,
        }
    }

    /// Returns the bytes of a row before compression, or `None` for objects.
    ///
    /// # Errors
    /// Returns the same errors as [`RowFormat::width`].
    pub fn row_bytes(&self) -> Result<Option<u64>, FrameError> {
        let Some((width, values)) = self.width()?.zip(self.values()) else {
            return Ok(None);
        };
        let scales = if values.has_scales() {
            (self.slices() as u64).saturating_mul(8)
        } else {
            0
        };
        let element = values.arrow_type().primitive_width().unwrap_or(0) as u64;
        Ok(Some(scales.saturating_add(element * width as u64)))
    }

    /// Returns the maximum number of bytes of a row before compression, or `None` for objects. For lossy
    /// element types, this includes the f32 values and the unused encoded values.
    fn largest_row_bytes(&self) -> Result<Option<u64>, FrameError> {
        let exact = if self.falls_back() {
            self.width()?.unwrap_or(0) as u64 * 4
        } else {
            0
        };
        Ok(self.row_bytes()?.map(|bytes| bytes.saturating_add(exact)))
    }

    /// Returns the maximum size in bytes of an answer with `rows` rows as a single message before
    /// compression. `objects` is the total size of the objects, for [`RowFormat::Object`]. Returns `u64::MAX`
    /// if Arrow does not support the format.
    pub fn message_bytes(&self, rows: u64, objects: u64) -> u64 {
        let row = self.largest_row_bytes().unwrap_or(Some(u64::MAX));
        let values = row.map_or(objects, |row| row.saturating_mul(rows));
        let overhead = ROW_OVERHEAD.saturating_mul(rows);
        values.saturating_add(overhead).saturating_add(MESSAGE_OVERHEAD)
    }

    /// Returns true if rows that do not fit are stored as `f32`.
    pub(crate) fn falls_back(&self) -> bool {
        self.values().is_some_and(Values::is_lossy)
    }

    /// Returns the Arrow schema of an answer.
    pub(crate) fn schema(&self, checksums: bool) -> Result<Schema, FrameError> {
        let mut fields = vec![
            Field::new(POSITION, DataType::UInt32, false),
            self.activation_field()?,
        ];
        if self.values().is_some_and(Values::has_scales) {
            let scales = self.scales_type()?;
            fields.push(Field::new(SCALE, scales.clone(), false));
            fields.push(Field::new(OFFSET, scales, false));
        }
        if self.falls_back() {
            fields.push(Field::new(EXACT, DataType::LargeList(exact_field()), true));
        }
        fields.push(Field::new(ERROR, DataType::Struct(error_fields()), true));
        if checksums {
            fields.push(Field::new(CHECKSUM, DataType::UInt64, false));
        }
        Ok(Schema::new(fields))
    }

    fn activation_field(&self) -> Result<Field, FrameError> {
        let Some(shape) = self.shape() else {
            return Ok(Field::new(ACTIVATION, DataType::LargeBinary, true));
        };
        let metadata = TensorMetadata {
            shape: shape.to_vec(),
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

    /// Returns the storage type of the column `activation`.
    pub(crate) fn column_type(&self) -> Result<DataType, FrameError> {
        match self.width()?.zip(self.values()) {
            None => Ok(DataType::LargeBinary),
            Some((width, values)) => list_type(values.arrow_type(), width),
        }
    }

    /// Returns the type of the columns `scale` and `offset`.
    pub(crate) fn scales_type(&self) -> Result<DataType, FrameError> {
        self.width()?;
        list_type(DataType::Float32, self.slices())
    }

    /// Checks a schema against this format. Names, types and tensor shape must match. Other metadata can
    /// differ. Returns true if the schema contains checksums.
    pub(crate) fn check(&self, schema: &Schema) -> Result<bool, FrameError> {
        let last = schema.fields().last();
        let checksums = last.is_some_and(|field| field.name() == CHECKSUM);
        let expected = self.schema(checksums)?;
        if schema.fields().len() != expected.fields().len() {
            return Err(FrameError::malformed(format!(
                "it has {} columns instead of {}",
                schema.fields().len(),
                expected.fields().len()
            )));
        }
        for (actual, wanted) in schema.fields().iter().zip(expected.fields()) {
            let same = actual.name() == wanted.name() && actual.data_type() == wanted.data_type();
            if !same || (wanted.name() == ACTIVATION && !self.same_shape(actual)) {
                return Err(FrameError::Schema {
                    column: wanted.name().clone(),
                    expected: describe(wanted),
                    actual: describe(actual),
                });
            }
        }
        Ok(checksums)
    }

    fn same_shape(&self, field: &Field) -> bool {
        let Some(shape) = self.shape() else {
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

fn list_type(element: DataType, length: usize) -> Result<DataType, FrameError> {
    let length = i32::try_from(length).map_err(FrameError::encode)?;
    Ok(DataType::FixedSizeList(
        Arc::new(Field::new_list_field(element, false)),
        length,
    ))
}

/// Returns the element field of the column `exact`.
pub(crate) fn exact_field() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Float32, false))
}

/// Suffix of error codes for errors caused by the host. Clients of earlier versions do not know these codes,
/// and retry.
const HOST_CAUSED_SUFFIX: &str = "@host";

/// Returns the encoded code of a row's error.
pub(crate) fn code_of(error: &OpError) -> String {
    let of_host = if error.host_caused { HOST_CAUSED_SUFFIX } else { "" };
    format!("{}{of_host}", error.code)
}

/// Creates the error of a row from code and message. Codes that this version does not know become
/// [`OpErrorCode::Unknown`].
pub(crate) fn row_error(code: &str, text: &str) -> OpError {
    let (name, host_caused) = match code.strip_suffix(HOST_CAUSED_SUFFIX) {
        Some(name) => (name, true),
        None => (code, false),
    };
    let known = serde_json::from_value(serde_json::Value::String(name.to_owned()));
    OpError {
        host_caused,
        ..OpError::new(known.unwrap_or(OpErrorCode::Unknown), text)
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
                RowFormat::Tensor(Values::F32, shape).schema(false),
                Err(FrameError::Format { .. })
            ));
        }
    }

    #[test]
    fn only_its_own_schema_passes() {
        let formats = [
            RowFormat::Object,
            RowFormat::Tensor(Values::F32, vec![2, 6]),
            RowFormat::Tensor(Values::F32, vec![3, 4]),
            RowFormat::Tensor(Values::U8, vec![2, 6]),
            RowFormat::Tensor(Values::F16, vec![2, 6]),
            RowFormat::Tensor(Values::Int8, vec![2, 6]),
        ];
        for (i, left) in formats.iter().enumerate() {
            for (k, right) in formats.iter().enumerate() {
                for checksums in [false, true] {
                    let checked = left.check(&right.schema(checksums).unwrap()).ok();
                    assert_eq!(checked, (i == k).then_some(checksums), "{left} against {right}");
                }
            }
        }
    }

    #[test]
    fn a_scalar_per_sample_is_one_element() {
        assert_eq!(RowFormat::Tensor(Values::F32, vec![]).width(), Ok(Some(1)));
        assert_eq!(
            RowFormat::Tensor(Values::F32, vec![2, 3]).row_bytes(),
            Ok(Some(24))
        );
        assert_eq!(RowFormat::Tensor(Values::U8, vec![2, 3]).row_bytes(), Ok(Some(6)));
        assert_eq!(RowFormat::Object.row_bytes(), Ok(None));
        assert_eq!(
            RowFormat::Tensor(Values::F16, vec![2, 3]).row_bytes(),
            Ok(Some(12))
        );
        assert_eq!(
            RowFormat::Tensor(Values::F16, vec![2, 3]).largest_row_bytes(),
            Ok(Some(36))
        );
        assert_eq!(
            RowFormat::Tensor(Values::Int8, vec![2, 3]).row_bytes(),
            Ok(Some(14))
        );
    }

    #[test]
    fn slices_of_64_elements_have_scales_of_their_own() {
        for (shape, slices) in [
            (vec![], 1),
            (vec![512], 1),
            (vec![16, 8, 8], 16),
            (vec![16, 7, 9], 1),
            (vec![197, 768], 197),
            (vec![3, usize::MAX, 2], 3),
        ] {
            assert_eq!(
                RowFormat::Tensor(Values::Int8, shape.clone()).slices(),
                slices,
                "{shape:?}"
            );
        }
    }
}
