//! Conversion of tensors to the columns between `position` and `error`.

use crate::rows::exact_field;
use crate::{FrameError, RowFormat, Values};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Int8Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, LargeListArray, PrimitiveArray, new_null_array};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use frostline_tensor::{Data, PixelFormat, exceeds_f16, quantize, to_f16};
use half::f16;
use std::sync::Arc;

/// Returns the columns for `values`. The caller has checked type and length. Elements are not copied if the
/// encoding is `f32` or `u8`.
pub(crate) fn columns(format: &RowFormat, values: Data) -> Result<Vec<ArrayRef>, FrameError> {
    let width = format.width()?.unwrap_or(1);
    match (format, values) {
        (RowFormat::Tensor(Values::F16, _), Data::F32(values)) => halves(format, &values, width),
        (RowFormat::Tensor(Values::Int8, _), Data::F32(values)) => int8_columns(format, &values, width),
        (_, Data::F32(values)) => Ok(vec![list::<Float32Type>(format.column_type()?, values, None)?]),
        (_, Data::U8(values)) => Ok(vec![list::<UInt8Type>(format.column_type()?, values, None)?]),
        (_, other) => Err(FrameError::Rows {
            expected: format.clone(),
            actual: other.dtype().to_string(),
        }),
    }
}

/// Returns the columns for a row without an activation. Arrow's layout requires elements even for null rows.
pub(crate) fn null_row(format: &RowFormat) -> Result<Vec<ArrayRef>, FrameError> {
    let Some((width, values)) = format.width()?.zip(format.values()) else {
        return Ok(vec![new_null_array(&DataType::LargeBinary, 1)]);
    };
    let zeros = match values.pixel_format() {
        PixelFormat::U8 => Data::U8(vec![0; width]),
        PixelFormat::F32 => Data::F32(vec![0.0; width]),
    };
    let mut columns = columns(format, zeros)?;
    if let Some(activation) = columns.first_mut() {
        let (field, length, elements, _) = activation.as_fixed_size_list().clone().into_parts();
        let null = Some(NullBuffer::new_null(1));
        let row = FixedSizeListArray::try_new(field, length, elements, null);
        *activation = Arc::new(row.map_err(FrameError::encode)?);
    }
    Ok(columns)
}

fn halves(format: &RowFormat, values: &[f32], width: usize) -> Result<Vec<ArrayRef>, FrameError> {
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
    let activation = list::<Float16Type>(format.column_type()?, halves, exact.encoded())?;
    Ok(vec![activation, exact.column()?])
}

fn int8_columns(format: &RowFormat, values: &[f32], width: usize) -> Result<Vec<ArrayRef>, FrameError> {
    let slices = format.slices();
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
        list::<Int8Type>(format.column_type()?, quantized, exact.encoded())?,
        list::<Float32Type>(format.scales_type()?, scales, None)?,
        list::<Float32Type>(format.scales_type()?, offsets, None)?,
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
