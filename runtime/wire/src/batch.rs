//! Decoded record batches.

use crate::column_group::ColumnGroup;
use crate::rows::row_error;
use crate::{FrameError, RowFormat, RowValue, Values};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Int8Type, Int32Type, UInt8Type, UInt32Type, UInt64Type,
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
    /// Columns of each tensor. Objects and rows with a single tensor have one element.
    tensors: Vec<TensorColumns>,
    /// True if rows are [`RowValue::Tensors`].
    is_divided: bool,
    errors: StructArray,
    /// Indices of rows with wrong checksums, ascending.
    corrupted: Vec<usize>,
}

/// Columns of a tensor, or the column of objects.
#[derive(Debug, Clone)]
pub(crate) struct TensorColumns {
    values: RowColumns,
    exact: Option<ExactRows>,
}

impl TensorColumns {
    fn of_objects(column: &ArrayRef) -> Result<Self, FrameError> {
        let objects = column.as_binary_opt::<i64>().ok_or_else(type_mismatch)?.clone();
        Ok(Self {
            values: RowColumns::Objects(objects),
            exact: None,
        })
    }

    fn new(group: &ColumnGroup<'_>, columns: &[ArrayRef]) -> Result<Self, FrameError> {
        let values = match (group.values, columns) {
            (Values::F32, [values, ..]) => RowColumns::F32(Lists::from_column(values)?),
            (Values::U8, [values, ..]) => RowColumns::U8(Lists::from_column(values)?),
            (Values::F16, [values, ..]) => RowColumns::F16(Lists::from_column(values)?),
            (Values::I32, [values, ..]) => RowColumns::I32(Lists::from_column(values)?),
            (Values::Int8, [values, scales, offsets, ..]) => RowColumns::Int8(Box::new(Int8Columns {
                values: Lists::from_column(values)?,
                scales: Lists::from_column(scales)?,
                offsets: Lists::from_column(offsets)?,
            })),
            _ => return Err(type_mismatch()),
        };
        let exact = columns.last().filter(|_| group.falls_back());
        let exact = exact.map(|exact| ExactRows::from_column(exact, group));
        Ok(Self {
            values,
            exact: exact.transpose()?,
        })
    }

    /// Returns the values of a row in the tensor's encoding.
    pub(crate) fn encoded(&self, index: usize) -> Option<RowValue<'_>> {
        match &self.values {
            RowColumns::Objects(objects) => objects
                .is_valid(index)
                .then(|| RowValue::Object(objects.value(index))),
            RowColumns::F32(values) => values.row(index).map(RowValue::F32),
            RowColumns::U8(values) => values.row(index).map(RowValue::U8),
            RowColumns::F16(values) => values.row(index).map(RowValue::F16),
            RowColumns::I32(values) => values.row(index).map(RowValue::I32),
            RowColumns::Int8(values) => values.row(index),
        }
    }

    /// Returns the f32 values if the encoding cannot represent this row.
    pub(crate) fn exact(&self, index: usize) -> Option<RowValue<'_>> {
        self.exact.as_ref()?.row(index).map(RowValue::F32)
    }

    /// Returns the values of a row, or `None` if it has none, or both encoded and exact ones.
    fn value(&self, index: usize) -> Option<RowValue<'_>> {
        match (self.encoded(index), self.exact(index)) {
            (Some(value), None) | (None, Some(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns true if the scales and offsets of a row are valid, or if the encoding has none.
    fn has_valid_scales(&self, index: usize) -> bool {
        match self.encoded(index) {
            Some(RowValue::Int8 { scales, offsets, .. }) => {
                scales.iter().all(|scale| scale.is_finite() && *scale >= 0.0)
                    && offsets.iter().all(|offset| offset.is_finite())
            }
            _ => true,
        }
    }
}

#[derive(Debug, Clone)]
enum RowColumns {
    Objects(LargeBinaryArray),
    F32(Lists<Float32Type>),
    U8(Lists<UInt8Type>),
    F16(Lists<Float16Type>),
    I32(Lists<Int32Type>),
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
    /// Creates a batch from the columns of `format` before the checksums.
    pub(crate) fn new(format: &RowFormat, columns: &[ArrayRef]) -> Result<Self, FrameError> {
        let [positions, values @ .., errors] = columns else {
            return Err(type_mismatch());
        };
        let batch = Self {
            positions: positions
                .as_primitive_opt::<UInt32Type>()
                .ok_or_else(type_mismatch)?
                .clone(),
            tensors: tensors_in(format, values)?,
            is_divided: format.is_divided(),
            errors: errors.as_struct_opt().ok_or_else(type_mismatch)?.clone(),
            corrupted: Vec::new(),
        };
        batch.check_scales()?;
        Ok(batch)
    }

    /// Creates a batch from the columns of an answer, the last of which contains the checksums.
    pub(crate) fn received(format: &RowFormat, columns: &[ArrayRef]) -> Result<Self, FrameError> {
        let (checksums, columns) = columns.split_last().ok_or_else(type_mismatch)?;
        let mut batch = Self::new(format, columns)?;
        let written = checksums
            .as_primitive_opt::<UInt64Type>()
            .ok_or_else(type_mismatch)?;
        let pairs = batch.checksums().zip(written.values()).enumerate();
        batch.corrupted = pairs
            .filter(|(_, (now, written))| now != *written)
            .map(|(row, _)| row)
            .collect();
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
                let outcome = match (self.value(index), self.error(index)) {
                    (Some(value), None) => Ok(value),
                    (None, Some(error)) if self.is_blank(index) => Err(error),
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

    pub(crate) fn tensors(&self) -> &[TensorColumns] {
        &self.tensors
    }

    /// Returns the values of a row. Returns `None` if a tensor has no values, or both encoded and exact ones.
    fn value(&self, index: usize) -> Option<RowValue<'_>> {
        match self.tensors.as_slice() {
            [tensor] if !self.is_divided => tensor.value(index),
            tensors => {
                let values = tensors.iter().map(|tensor| tensor.value(index));
                Some(RowValue::Tensors(values.collect::<Option<_>>()?))
            }
        }
    }

    /// Returns true if a row has no values.
    fn is_blank(&self, index: usize) -> bool {
        self.tensors
            .iter()
            .all(|tensor| tensor.encoded(index).is_none() && tensor.exact(index).is_none())
    }

    /// Checks that scales and offsets are valid.
    fn check_scales(&self) -> Result<(), FrameError> {
        let mut rows = (0..self.len()).filter(|index| !self.is_corrupted(*index));
        if rows.all(|index| self.tensors.iter().all(|tensor| tensor.has_valid_scales(index))) {
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

/// Divides the columns between `position` and `error` into those of each tensor.
fn tensors_in(format: &RowFormat, columns: &[ArrayRef]) -> Result<Vec<TensorColumns>, FrameError> {
    if let (RowFormat::Object, [objects]) = (format, columns) {
        return Ok(vec![TensorColumns::of_objects(objects)?]);
    }
    let mut tensors = Vec::new();
    let mut rest = columns;
    for group in format.groups() {
        let (own, after) = rest.split_at_checked(group.columns()).ok_or_else(type_mismatch)?;
        tensors.push(TensorColumns::new(&group, own)?);
        rest = after;
    }
    Ok(tensors)
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
    fn from_column(column: &ArrayRef, group: &ColumnGroup<'_>) -> Result<Self, FrameError> {
        let lists = column.as_list_opt::<i64>().ok_or_else(type_mismatch)?.clone();
        let elements = lists
            .values()
            .as_primitive_opt::<Float32Type>()
            .ok_or_else(type_mismatch)?
            .clone();
        let exact = Self { lists, elements };
        let width = group.width()?;
        let mut lengths = (0..exact.lists.len()).filter_map(|index| Some(exact.row(index)?.len()));
        if lengths.any(|length| length != width) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{columns, null_row};
    use crate::rows::error_fields;
    use crate::tests::{divided, part};
    use arrow_array::new_null_array;
    use arrow_schema::DataType;
    use frostline_tensor::Data;
    use std::sync::Arc;

    /// Returns true if the reader accepts a row with these columns of two tensors and this error.
    fn is_accepted(format: &RowFormat, values: &[&ArrayRef], error: &ArrayRef) -> bool {
        let position: ArrayRef = Arc::new(UInt32Array::from(vec![0]));
        let columns: Vec<ArrayRef> = [&position]
            .into_iter()
            .chain(values.iter().copied())
            .chain([error])
            .cloned()
            .collect();
        let batch = ActivationBatch::new(format, &columns).unwrap();
        batch.rows().all(|row| match row {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, FrameError::AmbiguousRow { position: 0 });
                false
            }
        })
    }

    #[test]
    fn each_tensor_of_a_row_has_either_a_value_or_an_exact_one() {
        let format = divided([part("a", Values::F16, &[1]), part("b", Values::I32, &[1])]);
        let encoded = columns(&format, Data::F32(vec![1.0, 2.0])).unwrap();
        let exact = columns(&format, Data::F32(vec![1e6, 0.5])).unwrap();
        let blank = null_row(&format).unwrap();
        let no_error = new_null_array(&DataType::Struct(error_fields()), 1);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let error: ArrayRef = Arc::new(StructArray::new(error_fields(), vec![text; 2], None));
        let candidates = [&encoded, &exact, &blank];
        // The columns are `activation/a`, `exact/a`, `activation/b` and `exact/b`.
        let mut accepted = 0;
        for choice in 0..81_usize {
            let picks = [1, 3, 9, 27].map(|divisor| choice / divisor % 3);
            let values: Vec<&ArrayRef> = picks
                .iter()
                .enumerate()
                .map(|(column, pick)| &candidates[*pick][column])
                .collect();
            let has_value = |pick: usize, column: usize| candidates[pick][column].is_valid(0);
            let has = [0, 1, 2, 3].map(|column| has_value(picks[column], column));
            let is_row = has[0] != has[1] && has[2] != has[3];
            assert_eq!(is_accepted(&format, &values, &no_error), is_row, "{picks:?}");
            assert_eq!(
                is_accepted(&format, &values, &error),
                has == [false; 4],
                "{picks:?}"
            );
            accepted += usize::from(is_row);
        }
        assert!(accepted > 0 && accepted < 81);
    }
}
