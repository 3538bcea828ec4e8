//! Decoded record batches.

use crate::rows::row_error;
use crate::{FrameError, RowFormat, RowValue, Values};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Int8Type, UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeBinaryArray, LargeListArray, PrimitiveArray, StringArray,
    StructArray, UInt32Array,
};
use frostline_tensor::OpError;

/// Decoded record batch. Values are borrowed from the received bytes, so rows can be copied or decoded
/// directly into the target buffer.
#[derive(Debug, Clone)]
pub struct ActivationBatch {
    positions: UInt32Array,
    values: RowColumns,
    exact: Option<ExactRows>,
    errors: StructArray,
    /// Indices of rows with wrong checksums, ascending.
    corrupted: Vec<usize>,
}

#[derive(Debug, Clone)]
enum RowColumns {
    Objects(LargeBinaryArray),
    F32(Lists<Float32Type>),
    U8(Lists<UInt8Type>),
    F16(Lists<Float16Type>),
    Int8(Box<Int8Columns>),
}

#[derive(Debug, Clone)]
struct Int8Columns {
    values: Lists<Int8Type>,
    scales: Lists<Float32Type>,
    offsets: Lists<Float32Type>,
}

impl Int8Columns {
    fn row(&self, index: usize) -> Option<RowValue<'_>> {
        Some(RowValue::Int8 {
            values: self.values.row(index)?,
            scales: self.scales.row(index)?,
            offsets: self.offsets.row(index)?,
        })
    }
}

/// Result for a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// Position of the sample in the request.
    pub position: u32,
    /// Result for the sample.
    pub outcome: Result<RowValue<'a>, OpError>,
}

impl ActivationBatch {
    /// Creates a batch from columns. Their schema must be valid for `format`, without the column `checksums`.
    pub(crate) fn new(
        format: &RowFormat,
        columns: &[ArrayRef],
        checksums: Option<&ArrayRef>,
    ) -> Result<Self, FrameError> {
        let [positions, values, others @ .., errors] = columns else {
            return Err(type_mismatch());
        };
        let values = match (format, others) {
            (RowFormat::Object, _) => {
                RowColumns::Objects(values.as_binary_opt::<i64>().ok_or_else(type_mismatch)?.clone())
            }
            (RowFormat::Tensor(Values::F32, _), _) => RowColumns::F32(Lists::from_column(values)?),
            (RowFormat::Tensor(Values::U8, _), _) => RowColumns::U8(Lists::from_column(values)?),
            (RowFormat::Tensor(Values::F16, _), _) => RowColumns::F16(Lists::from_column(values)?),
            (RowFormat::Tensor(Values::Int8, _), [scales, offsets, ..]) => {
                RowColumns::Int8(Box::new(Int8Columns {
                    values: Lists::from_column(values)?,
                    scales: Lists::from_column(scales)?,
                    offsets: Lists::from_column(offsets)?,
                }))
            }
            (RowFormat::Tensor(Values::Int8, _), _) => return Err(type_mismatch()),
        };
        let exact = others.last().filter(|_| format.falls_back());
        let exact = exact.map(|exact| ExactRows::from_column(exact, format));
        let mut batch = Self {
            positions: positions
                .as_primitive_opt::<UInt32Type>()
                .ok_or_else(type_mismatch)?
                .clone(),
            values,
            exact: exact.transpose()?,
            errors: errors.as_struct_opt().ok_or_else(type_mismatch)?.clone(),
            corrupted: Vec::new(),
        };
        if let Some(checksums) = checksums {
            let written = checksums
                .as_primitive_opt::<UInt64Type>()
                .ok_or_else(type_mismatch)?
                .values();
            let pairs = batch.checksums().zip(written).enumerate();
            batch.corrupted = pairs
                .filter(|(_, (now, written))| now != *written)
                .map(|(row, _)| row)
                .collect();
        }
        batch.check_scales()?;
        Ok(batch)
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns true if the batch has no rows. Readers never return such batches.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Returns the rows in the order of the batch.
    ///
    /// # Errors
    /// Returns [`FrameError::Checksum`] if a row is corrupted. Returns [`FrameError::AmbiguousRow`] if a row
    /// has both or neither of activation and error. Batches from
    /// [`ActivationReader`](crate::ActivationReader) contain no ambiguous rows.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'_>, FrameError>> {
        self.positions
            .values()
            .iter()
            .enumerate()
            .map(|(index, &position)| {
                if self.is_corrupted(index) {
                    return Err(FrameError::Checksum { position });
                }
                let outcome = match (self.value(index), self.exact(index), self.error(index)) {
                    (Some(value), None, None) => Ok(value),
                    (None, Some(row), None) => Ok(RowValue::F32(row)),
                    (None, None, Some(error)) => Err(error),
                    _ => return Err(FrameError::AmbiguousRow { position }),
                };
                Ok(Row { position, outcome })
            })
    }

    /// Returns the position in the row, which may be corrupted.
    pub(crate) fn position(&self, index: usize) -> u32 {
        self.positions.values().get(index).copied().unwrap_or_default()
    }

    fn is_corrupted(&self, index: usize) -> bool {
        self.corrupted.binary_search(&index).is_ok()
    }

    /// Returns the f32 values if the encoding cannot represent this row.
    pub(crate) fn exact(&self, index: usize) -> Option<&[f32]> {
        self.exact.as_ref()?.row(index)
    }

    pub(crate) fn value(&self, index: usize) -> Option<RowValue<'_>> {
        match &self.values {
            RowColumns::Objects(objects) => objects
                .is_valid(index)
                .then(|| RowValue::Object(objects.value(index))),
            RowColumns::F32(values) => values.row(index).map(RowValue::F32),
            RowColumns::U8(values) => values.row(index).map(RowValue::U8),
            RowColumns::F16(values) => values.row(index).map(RowValue::F16),
            RowColumns::Int8(values) => values.row(index),
        }
    }

    /// Checks that scales and offsets are valid.
    fn check_scales(&self) -> Result<(), FrameError> {
        if (0..self.len()).all(|index| match self.value(index) {
            _ if self.is_corrupted(index) => true,
            Some(RowValue::Int8 { scales, offsets, .. }) => {
                scales.iter().all(|scale| scale.is_finite() && *scale >= 0.0)
                    && offsets.iter().all(|offset| offset.is_finite())
            }
            _ => true,
        }) {
            return Ok(());
        }
        Err(FrameError::malformed(
            "invalid scales or offsets: values must be finite, and scales nonnegative",
        ))
    }

    fn error(&self, index: usize) -> Option<OpError> {
        let [code, text] = self.error_texts(index)?;
        Some(row_error(code, text))
    }

    /// Returns the code and the message of an error.
    pub(crate) fn error_texts(&self, index: usize) -> Option<[&str; 2]> {
        if self.errors.is_null(index) {
            return None;
        }
        Some([0, 1].map(|column| self.error_text(index, column).unwrap_or_default()))
    }

    fn error_text(&self, index: usize, column: usize) -> Option<&str> {
        let texts: &StringArray = self.errors.columns().get(column)?.as_string_opt()?;
        texts.is_valid(index).then(|| texts.value(index))
    }
}

/// Column of fixed-size lists.
#[derive(Debug)]
struct Lists<T: ArrowPrimitiveType> {
    lists: FixedSizeListArray,
    elements: PrimitiveArray<T>,
}

/// Implemented manually, because the derived implementation requires `T: Clone`.
impl<T: ArrowPrimitiveType> Clone for Lists<T> {
    fn clone(&self) -> Self {
        Self {
            lists: self.lists.clone(),
            elements: self.elements.clone(),
        }
    }
}

impl<T: ArrowPrimitiveType> Lists<T> {
    fn from_column(column: &ArrayRef) -> Result<Self, FrameError> {
        let lists = column.as_fixed_size_list_opt().ok_or_else(type_mismatch)?.clone();
        let elements = lists
            .values()
            .as_primitive_opt::<T>()
            .ok_or_else(type_mismatch)?
            .clone();
        Ok(Self { lists, elements })
    }

    fn row(&self, index: usize) -> Option<&[T::Native]> {
        let width = usize::try_from(self.lists.value_length()).ok()?;
        let start = index.checked_mul(width)?;
        if self.lists.is_null(index) {
            return None;
        }
        self.elements.values().get(start..start.checked_add(width)?)
    }
}

/// Column `exact` with f32 rows.
#[derive(Debug, Clone)]
struct ExactRows {
    lists: LargeListArray,
    elements: PrimitiveArray<Float32Type>,
}

impl ExactRows {
    /// Creates the column and checks the row lengths.
    fn from_column(column: &ArrayRef, format: &RowFormat) -> Result<Self, FrameError> {
        let lists = column.as_list_opt::<i64>().ok_or_else(type_mismatch)?.clone();
        let elements = lists
            .values()
            .as_primitive_opt::<Float32Type>()
            .ok_or_else(type_mismatch)?
            .clone();
        let exact = Self { lists, elements };
        let width = format.width()?;
        let mut lengths = (0..exact.lists.len()).filter_map(|index| Some(exact.row(index)?.len()));
        if lengths.any(|length| Some(length) != width) {
            return Err(FrameError::malformed(
                "a row in the column `exact` has a wrong length",
            ));
        }
        Ok(exact)
    }

    /// Returns the values of a row, or an empty slice if the offsets are out of range. The length check then
    /// rejects it.
    fn row(&self, index: usize) -> Option<&[f32]> {
        if self.lists.is_null(index) {
            return None;
        }
        let place = self.lists.value_offsets().get(index..index.checked_add(2)?);
        let range = match place {
            Some(&[start, end]) => usize::try_from(start).ok()?..usize::try_from(end).ok()?,
            _ => 0..0,
        };
        Some(self.elements.values().get(range).unwrap_or_default())
    }
}

fn type_mismatch() -> FrameError {
    FrameError::malformed("the column types do not match the schema")
}
