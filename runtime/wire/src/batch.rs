//! One decoded record batch and its rows.

use crate::rows::row_error;
use crate::{FrameError, RowFormat, RowValue};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Int8Type, UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeBinaryArray, LargeListArray, PrimitiveArray, StringArray,
    StructArray, UInt32Array,
};
use frostline_tensor::OpError;

/// Rows that arrived together. Values are borrowed from the bytes as received, so one row can be copied or decoded straight to
/// where it belongs.
#[derive(Debug, Clone)]
pub struct ActivationBatch {
    positions: UInt32Array,
    values: Columns,
    exact: Option<Exact>,
    errors: StructArray,
    /// Rows that are not what was written, ascending.
    broken: Vec<usize>,
}

#[derive(Debug, Clone)]
enum Columns {
    Objects(LargeBinaryArray),
    F32(Lists<Float32Type>),
    U8(Lists<UInt8Type>),
    F16(Lists<Float16Type>),
    Int8(Box<EightBits>),
}

#[derive(Debug, Clone)]
struct EightBits {
    values: Lists<Int8Type>,
    scales: Lists<Float32Type>,
    offsets: Lists<Float32Type>,
}

impl EightBits {
    fn row(&self, index: usize) -> Option<RowValue<'_>> {
        Some(RowValue::Int8 {
            values: self.values.row(index)?,
            scales: self.scales.row(index)?,
            offsets: self.offsets.row(index)?,
        })
    }
}

/// One sample's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// The client's number for the sample.
    pub position: u32,
    /// Its activation, or why there is none.
    pub outcome: Result<RowValue<'a>, OpError>,
}

impl ActivationBatch {
    /// Of the columns of a batch whose schema was checked to be that of `format`, the one of `checksums` apart.
    pub(crate) fn new(
        format: &RowFormat,
        columns: &[ArrayRef],
        checksums: Option<&ArrayRef>,
    ) -> Result<Self, FrameError> {
        let mut batch = match (format, columns) {
            (RowFormat::F16(_), [positions, values, exact, errors]) => {
                let exact = Exact::from_column(exact, format)?;
                Self::from_columns(
                    positions,
                    Columns::F16(Lists::from_column(values)?),
                    Some(exact),
                    errors,
                )
            }
            (RowFormat::Int8(_), [positions, values, scales, offsets, exact, errors]) => {
                let values = Box::new(EightBits {
                    values: Lists::from_column(values)?,
                    scales: Lists::from_column(scales)?,
                    offsets: Lists::from_column(offsets)?,
                });
                let exact = Exact::from_column(exact, format)?;
                Self::from_columns(positions, Columns::Int8(values), Some(exact), errors)
            }
            (_, [positions, values, errors]) => {
                let values = match format {
                    RowFormat::Object => {
                        Columns::Objects(values.as_binary_opt::<i64>().ok_or_else(wrong)?.clone())
                    }
                    RowFormat::F32(_) => Columns::F32(Lists::from_column(values)?),
                    _ => Columns::U8(Lists::from_column(values)?),
                };
                Self::from_columns(positions, values, None, errors)
            }
            _ => Err(wrong()),
        }?;
        if let Some(checksums) = checksums {
            let written = checksums
                .as_primitive_opt::<UInt64Type>()
                .ok_or_else(wrong)?
                .values();
            let pairs = batch.checksums().zip(written).enumerate();
            batch.broken = pairs
                .filter(|(_, (now, written))| now != *written)
                .map(|(row, _)| row)
                .collect();
        }
        batch.check_scales()?;
        Ok(batch)
    }

    fn from_columns(
        positions: &ArrayRef,
        values: Columns,
        exact: Option<Exact>,
        errors: &ArrayRef,
    ) -> Result<Self, FrameError> {
        Ok(Self {
            positions: positions
                .as_primitive_opt::<UInt32Type>()
                .ok_or_else(wrong)?
                .clone(),
            values,
            exact,
            errors: errors.as_struct_opt().ok_or_else(wrong)?.clone(),
            broken: Vec::new(),
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
    /// [`FrameError::Checksum`] for a row that was changed on its way. [`FrameError::AmbiguousRow`] for one with both an activation and an error, or
    /// neither: batches from [`ActivationReader`](crate::ActivationReader) have been checked for it.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'_>, FrameError>> {
        self.positions
            .values()
            .iter()
            .enumerate()
            .map(|(index, &position)| {
                if self.is_broken(index) {
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

    /// The position that a row claims.
    pub(crate) fn position(&self, index: usize) -> u32 {
        self.positions.values().get(index).copied().unwrap_or_default()
    }

    fn is_broken(&self, index: usize) -> bool {
        self.broken.binary_search(&index).is_ok()
    }

    /// A row's values as computed, where its encoding could not hold them.
    pub(crate) fn exact(&self, index: usize) -> Option<&[f32]> {
        self.exact.as_ref()?.row(index)
    }

    pub(crate) fn value(&self, index: usize) -> Option<RowValue<'_>> {
        match &self.values {
            Columns::Objects(objects) => objects
                .is_valid(index)
                .then(|| RowValue::Object(objects.value(index))),
            Columns::F32(values) => values.row(index).map(RowValue::F32),
            Columns::U8(values) => values.row(index).map(RowValue::U8),
            Columns::F16(values) => values.row(index).map(RowValue::F16),
            Columns::Int8(values) => values.row(index),
        }
    }

    /// Refuses scales and offsets that no encoder writes.
    fn check_scales(&self) -> Result<(), FrameError> {
        let sane = |index| match self.value(index) {
            _ if self.is_broken(index) => true,
            Some(RowValue::Int8 { scales, offsets, .. }) => {
                scales.iter().all(|scale| scale.is_finite() && *scale >= 0.0)
                    && offsets.iter().all(|offset| offset.is_finite())
            }
            _ => true,
        };
        if (0..self.len()).all(sane) {
            return Ok(());
        }
        Err(FrameError::malformed(
            "a scale that is not finite, or below zero, or an offset that is not finite",
        ))
    }

    fn error(&self, index: usize) -> Option<OpError> {
        let [code, text] = self.error_texts(index)?;
        Some(row_error(code, text))
    }

    /// An error's code and text.
    pub(crate) fn error_texts(&self, index: usize) -> Option<[&str; 2]> {
        if self.errors.is_null(index) {
            return None;
        }
        let text = |column: usize| -> Option<&str> {
            let texts: &StringArray = self.errors.columns().get(column)?.as_string_opt()?;
            texts.is_valid(index).then(|| texts.value(index))
        };
        Some([0, 1].map(|column| text(column).unwrap_or_default()))
    }
}

/// A column of lists of one length, with their elements.
#[derive(Debug)]
struct Lists<T: ArrowPrimitiveType> {
    lists: FixedSizeListArray,
    elements: PrimitiveArray<T>,
}

/// Not derived, which would ask the same of `T`.
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
        let lists = column.as_fixed_size_list_opt().ok_or_else(wrong)?.clone();
        let elements = lists.values().as_primitive_opt::<T>().ok_or_else(wrong)?.clone();
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

/// The rows that travel as they are.
#[derive(Debug, Clone)]
struct Exact {
    lists: LargeListArray,
    elements: PrimitiveArray<Float32Type>,
}

impl Exact {
    /// The column, whose rows are checked to be as long as those of `format`.
    fn from_column(column: &ArrayRef, format: &RowFormat) -> Result<Self, FrameError> {
        let lists = column.as_list_opt::<i64>().ok_or_else(wrong)?.clone();
        let elements = lists
            .values()
            .as_primitive_opt::<Float32Type>()
            .ok_or_else(wrong)?
            .clone();
        let exact = Self { lists, elements };
        let width = format.width()?;
        let mut lengths = (0..exact.lists.len()).filter_map(|index| Some(exact.row(index)?.len()));
        if lengths.any(|length| Some(length) != width) {
            return Err(FrameError::malformed(
                "an exact row of another length than its format's",
            ));
        }
        Ok(exact)
    }

    /// A row whose place lies outside the elements is empty, and so of the wrong length.
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

fn wrong() -> FrameError {
    FrameError::malformed("columns of other types than its schema")
}
