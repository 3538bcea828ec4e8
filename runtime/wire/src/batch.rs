//! One decoded record batch and its rows.

use crate::FrameError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type, UInt32Type};
use arrow_array::{
    Array, FixedSizeListArray, LargeBinaryArray, PrimitiveArray, RecordBatch, StringArray, StructArray,
    UInt32Array,
};
use frostline_tensor::{OpError, OpErrorCode};

/// Rows that arrived together. Values are borrowed from the bytes as received, so one row can be copied straight to
/// where it belongs.
#[derive(Debug, Clone)]
pub struct ActivationBatch {
    positions: UInt32Array,
    values: Values,
    errors: StructArray,
}

#[derive(Debug, Clone)]
enum Values {
    Objects(LargeBinaryArray),
    F32(FixedSizeListArray, PrimitiveArray<Float32Type>),
    U8(FixedSizeListArray, PrimitiveArray<UInt8Type>),
}

/// One sample's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// The client's number for the sample.
    pub position: u32,
    /// Its activation, or why there is none.
    pub outcome: Result<RowValue<'a>, OpError>,
}

/// The activation of one sample, row-major.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowValue<'a> {
    /// An object's bytes, as stored.
    Object(&'a [u8]),
    /// Activations as computed.
    F32(&'a [f32]),
    /// Pixels before normalisation.
    U8(&'a [u8]),
}

impl RowValue<'_> {
    /// Bytes the value takes.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Object(bytes) | Self::U8(bytes) => bytes.len(),
            Self::F32(values) => size_of_val(*values),
        }
    }
}

impl ActivationBatch {
    /// Columns of a batch whose schema was checked.
    pub(crate) fn new(batch: &RecordBatch) -> Result<Self, FrameError> {
        let wrong = || FrameError::malformed("columns of other types than its schema");
        let [positions, values, errors] = batch.columns() else {
            return Err(wrong());
        };
        let values = if let Some(objects) = values.as_binary_opt::<i64>() {
            Values::Objects(objects.clone())
        } else {
            let list = values.as_fixed_size_list_opt().ok_or_else(wrong)?.clone();
            if let Some(elements) = list.values().as_primitive_opt::<Float32Type>().cloned() {
                Values::F32(list, elements)
            } else {
                let elements = list
                    .values()
                    .as_primitive_opt::<UInt8Type>()
                    .cloned()
                    .ok_or_else(wrong)?;
                Values::U8(list, elements)
            }
        };
        let positions = positions
            .as_primitive_opt::<UInt32Type>()
            .ok_or_else(wrong)?
            .clone();
        Ok(Self {
            positions,
            values,
            errors: errors.as_struct_opt().ok_or_else(wrong)?.clone(),
        })
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether it has none; the reader never returns such a batch.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The rows, as they stand in the batch.
    ///
    /// # Errors
    /// [`FrameError::AmbiguousRow`] for a row with both an activation and an error, or neither. Batches from
    /// [`ActivationReader`](crate::ActivationReader) have been checked for it.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'_>, FrameError>> {
        self.positions
            .values()
            .iter()
            .enumerate()
            .map(|(index, &position)| {
                let ambiguous = || FrameError::AmbiguousRow { position };
                let outcome = match (self.value(index), self.error(index)) {
                    (Some(value), None) => Ok(value),
                    (None, Some(error)) => Err(error),
                    _ => return Err(ambiguous()),
                };
                Ok(Row { position, outcome })
            })
    }

    fn value(&self, index: usize) -> Option<RowValue<'_>> {
        match &self.values {
            Values::Objects(objects) => objects
                .is_valid(index)
                .then(|| RowValue::Object(objects.value(index))),
            Values::F32(list, elements) => row_of(list, elements.values(), index).map(RowValue::F32),
            Values::U8(list, elements) => row_of(list, elements.values(), index).map(RowValue::U8),
        }
    }

    fn error(&self, index: usize) -> Option<OpError> {
        if self.errors.is_null(index) {
            return None;
        }
        let text = |column: usize| -> Option<&str> {
            let texts: &StringArray = self.errors.columns().get(column)?.as_string_opt()?;
            texts.is_valid(index).then(|| texts.value(index))
        };
        Some(OpError::new(
            code(text(0).unwrap_or_default()),
            text(1).unwrap_or_default(),
        ))
    }
}

fn row_of<'a, T>(list: &FixedSizeListArray, elements: &'a [T], index: usize) -> Option<&'a [T]> {
    let width = usize::try_from(list.value_length()).ok()?;
    let start = index.checked_mul(width)?;
    if list.is_null(index) {
        return None;
    }
    elements.get(start..start.checked_add(width)?)
}

/// The code of that name; one this version does not know counts as unknown.
fn code(name: &str) -> OpErrorCode {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).unwrap_or(OpErrorCode::Unknown)
}
