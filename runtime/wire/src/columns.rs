//! Conversion of tensors to the columns between `position` and `error`.

use crate::column_group::{ColumnGroup, exact_field};
use crate::{FrameError, RowFormat, Values};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Int8Type, Int32Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, LargeListArray, PrimitiveArray, new_null_array};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use frostline_tensor::{Data, exceeds_f16, quantize, to_f16};
use half::f16;
use std::sync::Arc;

/// Returns the columns for `values`. The caller has checked type and length. Elements are not copied if rows are a
/// single tensor and the encoding is `f32` or `u8`.
pub(crate) fn columns(format: &RowFormat, values: Data) -> Result<Vec<ArrayRef>, FrameError> {
    let groups = format.groups();
    match (groups.as_slice(), values) {
        ([group], values) if !format.is_divided() => group_columns(group, values),
        (groups, Data::F32(values)) => divided_columns(groups, &values, format.width()?.unwrap_or(1)),
        (_, other) => Err(FrameError::Rows {
            expected: format.clone(),
            actual: other.dtype().to_string(),
        }),
    }
}

/// Returns the columns for a row without an activation. Arrow's layout requires elements even for null rows.
pub(crate) fn null_row(format: &RowFormat) -> Result<Vec<ArrayRef>, FrameError> {
    if *format == RowFormat::Object {
        return Ok(vec![new_null_array(&DataType::LargeBinary, 1)]);
    }
    let mut all = Vec::new();
    for group in format.groups() {
        let width = group.width()?;
        let zeros = match group.values {
            Values::U8 if !group.falls_back() => Data::U8(vec![0; width]),
            _ => Data::F32(vec![0.0; width]),
        };
        let mut columns = group_columns(&group, zeros)?;
        if let Some(activation) = columns.first_mut() {
            let (field, length, elements, _) = activation.as_fixed_size_list().clone().into_parts();
            let null = Some(NullBuffer::new_null(1));
            let row = FixedSizeListArray::try_new(field, length, elements, null);
            *activation = Arc::new(row.map_err(FrameError::encode)?);
        }
        all.extend(columns);
    }
    Ok(all)
}

/// Returns the columns of each tensor in rows of `width` elements.
fn divided_columns(
    groups: &[ColumnGroup<'_>],
    values: &[f32],
    width: usize,
) -> Result<Vec<ArrayRef>, FrameError> {
    let mut columns = Vec::new();
    let mut start = 0;
    for group in groups {
        let end = start + group.width()?;
        let rows = values.chunks_exact(width);
        let own: Vec<f32> = rows
            .filter_map(|row| row.get(start..end))
            .flatten()
            .copied()
            .collect();
        columns.extend(group_columns(group, Data::F32(own))?);
        start = end;
    }
    Ok(columns)
}

fn group_columns(group: &ColumnGroup<'_>, values: Data) -> Result<Vec<ArrayRef>, FrameError> {
    match (group.values, values) {
        (Values::F16, Data::F32(values)) => halves(group, &values),
        (Values::Int8, Data::F32(values)) => int8_columns(group, &values),
        (Values::I32, Data::F32(values)) => {
            integers::<Int32Type>(group, &values, |value| value as i32, |value| value as f32)
        }
        (Values::U8, Data::F32(values)) if group.falls_back() => {
            integers::<UInt8Type>(group, &values, |value| value as u8, f32::from)
        }
        (Values::F32, Data::F32(values)) => {
            Ok(vec![list::<Float32Type>(group.column_type()?, values, None)?])
        }
        (Values::U8, Data::U8(values)) => Ok(vec![list::<UInt8Type>(group.column_type()?, values, None)?]),
        (values, other) => Err(FrameError::Rows {
            expected: values.rows(group.shape.to_vec()),
            actual: other.dtype().to_string(),
        }),
    }
}

/// Returns the columns of integers that were computed as `f32`. Rows with other values are exact.
fn integers<T: ArrowPrimitiveType>(
    group: &ColumnGroup<'_>,
    values: &[f32],
    narrow: impl Fn(f32) -> T::Native,
    widen: impl Fn(T::Native) -> f32,
) -> Result<Vec<ArrayRef>, FrameError> {
    let mut integers = Vec::with_capacity(values.len());
    let mut exact = ExactBuilder::default();
    for row in values.chunks_exact(group.width()?) {
        let start = integers.len();
        integers.extend(row.iter().map(|value| narrow(*value)));
        let own = integers.get_mut(start..).unwrap_or_default();
        if own
            .iter()
            .zip(row)
            .all(|(integer, value)| widen(*integer) == *value)
        {
            exact.push_null();
        } else {
            own.fill(T::Native::default());
            exact.push_row(row);
        }
    }
    let activation = list::<T>(group.column_type()?, integers, exact.encoded())?;
    Ok(vec![activation, exact.column()?])
}

fn halves(group: &ColumnGroup<'_>, values: &[f32]) -> Result<Vec<ArrayRef>, FrameError> {
    let width = group.width()?;
    let mut halves = to_f16(values);
    let mut exact = ExactBuilder::default();
    for (row, half) in values.chunks_exact(width).zip(halves.chunks_exact_mut(width)) {
        if exceeds_f16(row) {
            half.fill(f16::ZERO);
            exact.push_row(row);
        } else {
            exact.push_null();
        }
    }
    let activation = list::<Float16Type>(group.column_type()?, halves, exact.encoded())?;
    Ok(vec![activation, exact.column()?])
}

fn int8_columns(group: &ColumnGroup<'_>, values: &[f32]) -> Result<Vec<ArrayRef>, FrameError> {
    let width = group.width()?;
    let slices = group.slices();
    let rows = values.len() / width;
    let mut exact = ExactBuilder::default();
    let mut quantized = vec![0_i8; values.len()];
    let mut scales = vec![0.0; rows * slices];
    let mut offsets = vec![0.0; rows * slices];
    let places = quantized.chunks_exact_mut(width).zip(
        scales
            .chunks_exact_mut(slices)
            .zip(offsets.chunks_exact_mut(slices)),
    );
    for (row, (quantized, (scales, offsets))) in values.chunks_exact(width).zip(places) {
        if quantize_row(row, quantized, scales, offsets) {
            exact.push_null();
        } else {
            quantized.fill(0);
            scales.fill(0.0);
            offsets.fill(0.0);
            exact.push_row(row);
        }
    }
    Ok(vec![
        list::<Int8Type>(group.column_type()?, quantized, exact.encoded())?,
        list::<Float32Type>(group.scales_type()?, scales, None)?,
        list::<Float32Type>(group.scales_type()?, offsets, None)?,
        exact.column()?,
    ])
}

/// Quantizes the slices of a row. Returns false if a slice cannot be quantized.
fn quantize_row(row: &[f32], into: &mut [i8], scales: &mut [f32], offsets: &mut [f32]) -> bool {
    let slice = (row.len() / scales.len().max(1)).max(1);
    let places = into
        .chunks_exact_mut(slice)
        .zip(scales.iter_mut().zip(offsets.iter_mut()));
    for (values, (into, (scale, offset))) in row.chunks_exact(slice).zip(places) {
        let Some(affine) = quantize(values, into) else {
            return false;
        };
        (*scale, *offset) = (affine.scale, affine.offset);
    }
    true
}

/// Builder for the column `exact`, which contains rows that the encoding cannot represent.
#[derive(Default)]
struct ExactBuilder {
    is_present: Vec<bool>,
    lengths: Vec<usize>,
    elements: Vec<f32>,
}

impl ExactBuilder {
    /// Adds an empty row if the row is encoded or failed.
    fn push_null(&mut self) {
        self.is_present.push(false);
        self.lengths.push(0);
    }

    /// Adds a row as f32.
    fn push_row(&mut self, row: &[f32]) {
        self.is_present.push(true);
        self.lengths.push(row.len());
        self.elements.extend_from_slice(row);
    }

    /// Returns the validity of the column `activation`. Rows in the column `exact` are null.
    fn encoded(&self) -> Option<NullBuffer> {
        self.is_present
            .contains(&true)
            .then(|| self.is_present.iter().map(|there| !there).collect())
    }

    fn column(self) -> Result<ArrayRef, FrameError> {
        let offsets = OffsetBuffer::<i64>::from_lengths(self.lengths);
        let values = PrimitiveArray::<Float32Type>::new(ScalarBuffer::from(self.elements), None);
        let nulls = NullBuffer::from(self.is_present);
        let list = LargeListArray::try_new(exact_field(), offsets, Arc::new(values), Some(nulls));
        Ok(Arc::new(list.map_err(FrameError::encode)?))
    }
}

fn list<T: ArrowPrimitiveType>(
    column: DataType,
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, FrameError> {
    let DataType::FixedSizeList(field, length) = column else {
        return Err(FrameError::encode(format!("{column} is not a tensor column")));
    };
    let values = PrimitiveArray::<T>::new(ScalarBuffer::from(values), None);
    let list = FixedSizeListArray::try_new(field, length, Arc::new(values), nulls);
    Ok(Arc::new(list.map_err(FrameError::encode)?))
}
