//! Columns of answers, and validation of schemas.

use crate::column_group::{ColumnGroup, same_shape};
use crate::{FrameError, RowFormat};
use arrow_schema::{DataType, Field, Fields, Schema};
use frostline_tensor::{OpError, OpErrorCode};

const POSITION: &str = "position";
/// Name of the column with the bytes of objects.
const OBJECT: &str = "activation";
const ERROR: &str = "error";
const CHECKSUM: &str = "checksum";

/// Maximum size of an error's code and message in bytes, including Arrow's overhead per row.
const ROW_OVERHEAD: u64 = 2 << 10;

/// Maximum overhead of an Arrow message in bytes.
const MESSAGE_OVERHEAD: u64 = 64 << 10;

impl RowFormat {
    /// Returns the number of elements in a row, or `None` for objects, which differ in size.
    ///
    /// # Errors
    /// Returns [`FrameError::Format`] if the number is 0 or exceeds 31 bits.
    pub fn width(&self) -> Result<Option<usize>, FrameError> {
        let mut total = None;
        for group in self.groups() {
            let sum = group.width()?.saturating_add(total.unwrap_or(0));
            if i32::try_from(sum).is_err() {
                return Err(FrameError::Format {
                    shape: vec![sum],
                    reason: "there are more than 2^31 - 1 elements".to_owned(),
                });
            }
            total = Some(sum);
        }
        Ok(total)
    }

    /// Returns the bytes of a row before compression, or `None` for objects.
    ///
    /// # Errors
    /// Returns the same errors as [`RowFormat::width`].
    pub fn row_bytes(&self) -> Result<Option<u64>, FrameError> {
        self.sum(|group| group.row_bytes())
    }

    /// Returns the maximum number of bytes of a row before compression, or `None` for objects. For tensors with a
    /// column `exact`, this includes the f32 values and the unused encoded values.
    fn largest_row_bytes(&self) -> Result<Option<u64>, FrameError> {
        self.sum(|group| Ok(group.row_bytes()?.saturating_add(group.exact_bytes()?)))
    }

    /// Returns the sum over all tensors of a row, or `None` for objects.
    fn sum(
        &self,
        bytes: impl Fn(&ColumnGroup<'_>) -> Result<u64, FrameError>,
    ) -> Result<Option<u64>, FrameError> {
        if self.width()?.is_none() {
            return Ok(None);
        }
        let mut total = 0_u64;
        for group in self.groups() {
            total = total.saturating_add(bytes(&group)?);
        }
        Ok(Some(total))
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

    /// Returns the Arrow schema of an answer.
    pub(crate) fn schema(&self) -> Result<Schema, FrameError> {
        self.width()?;
        let mut fields = vec![position_field()];
        if *self == Self::Object {
            fields.push(object_field());
        }
        for group in self.groups() {
            fields.extend(group.fields()?);
        }
        fields.extend(end_fields());
        Ok(Schema::new(fields))
    }

    /// Checks a schema against this format. Names, types and tensor shapes must match. Other metadata can
    /// differ.
    pub(crate) fn check(&self, schema: &Schema) -> Result<(), FrameError> {
        let expected = self.schema()?;
        if schema.fields().len() != expected.fields().len() {
            return Err(FrameError::malformed(format!(
                "it has {} columns instead of {}",
                schema.fields().len(),
                expected.fields().len()
            )));
        }
        for (actual, wanted) in schema.fields().iter().zip(expected.fields()) {
            let same = actual.name() == wanted.name() && actual.data_type() == wanted.data_type();
            if !same || !same_shape(actual, wanted) {
                return Err(FrameError::Schema {
                    column: wanted.name().clone(),
                    expected: describe(wanted),
                    actual: describe(actual),
                });
            }
        }
        Ok(())
    }
}

pub(crate) fn position_field() -> Field {
    Field::new(POSITION, DataType::UInt32, false)
}

/// Returns the field of objects.
pub(crate) fn object_field() -> Field {
    Field::new(OBJECT, DataType::LargeBinary, true)
}

/// Returns the fields after those of the values.
pub(crate) fn end_fields() -> [Field; 2] {
    [
        Field::new(ERROR, DataType::Struct(error_fields()), true),
        Field::new(CHECKSUM, DataType::UInt64, false),
    ]
}

/// Suffix of error codes for errors caused by the host.
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
    use crate::Values;
    use crate::tests::{divided, part};

    #[test]
    fn rows_arrow_cannot_count_are_refused() {
        for shape in [vec![usize::MAX, 2], vec![1 << 16, 1 << 15], vec![3, 0]] {
            assert!(matches!(
                RowFormat::Tensor(Values::F32, shape).schema(),
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
            divided([part("a", Values::F32, &[2, 6])]),
            divided([part("a", Values::F32, &[4]), part("b", Values::F32, &[8])]),
            divided([part("b", Values::F32, &[4]), part("a", Values::F32, &[8])]),
            divided([part("a", Values::F32, &[4]), part("b", Values::F32, &[2, 4])]),
            divided([part("a", Values::F32, &[4]), part("b", Values::F16, &[8])]),
            divided([part("a", Values::F32, &[4]), part("b", Values::I32, &[8])]),
            divided([part("a", Values::F32, &[4]), part("b", Values::U8, &[8])]),
            divided([part("a", Values::F32, &[4]), part("b", Values::Int8, &[8])]),
            divided([
                part("a", Values::F32, &[4]),
                part("b", Values::Int8, &[8]),
                part("c", Values::U8, &[1]),
            ]),
        ];
        for (i, left) in formats.iter().enumerate() {
            for (k, right) in formats.iter().enumerate() {
                let checked = left.check(&right.schema().unwrap());
                assert_eq!(checked.is_ok(), i == k, "{left} against {right}");
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
        let row = divided([
            part("a", Values::Int8, &[2, 64]),
            part("b", Values::I32, &[3]),
            part("c", Values::U8, &[]),
        ]);
        assert_eq!(row.width(), Ok(Some(132)));
        assert_eq!(row.row_bytes(), Ok(Some(128 + 16 + 12 + 1)));
        assert_eq!(row.largest_row_bytes(), Ok(Some(157 + 132 * 4)));
        let huge = part("a", Values::F32, &[1 << 30]);
        assert!(divided([huge.clone(), huge]).width().is_err());
    }
}
