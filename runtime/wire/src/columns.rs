//! The rows of a tensor as the columns between `position` and `error`.

use crate::rows::exact_field;
use crate::{FrameError, RowFormat};
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Int8Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, LargeListArray, PrimitiveArray, new_null_array};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use frostline_tensor::{Data, exceeds_f16, quantize, to_f16};
use half::f16;
use std::sync::Arc;

/// The columns for `values`, whose type and number were checked. Elements that travel as they are are not copied.
pub(crate) fn columns(format: &RowFormat, values: Data) -> Result<Vec<ArrayRef>, FrameError> {
    let width = format.width()?.unwrap_or(1);
    match (format, values) {
        (RowFormat::F16(_), Data::F32(values)) => halves(format, &values, width),
        (RowFormat::Int8(_), Data::F32(values)) => eight_bits(format, &values, width),
        (_, Data::F32(values)) => Ok(vec![list::<Float32Type>(format.column_type()?, values, None)?]),
        (_, Data::U8(values)) => Ok(vec![list::<UInt8Type>(format.column_type()?, values, None)?]),
        (_, other) => Err(FrameError::Rows {
            expected: format.clone(),
            actual: other.dtype().to_string(),
        }),
    }
}

/// The columns of one row without an activation: blank elements, as Arrow's layout wants them under a null row.
pub(crate) fn blank(format: &RowFormat) -> Result<Vec<ArrayRef>, FrameError> {
    let Some(width) = format.width()? else {
        return Ok(vec![new_null_array(&DataType::LargeBinary, 1)]);
    };
    let (column, null) = (format.column_type()?, Some(NullBuffer::new_null(1)));
    let mut columns = vec![match format {
        RowFormat::F32(_) => list::<Float32Type>(column, vec![0.0; width], null)?,
        RowFormat::F16(_) => list::<Float16Type>(column, vec![f16::ZERO; width], null)?,
        RowFormat::Int8(_) => list::<Int8Type>(column, vec![0; width], null)?,
        RowFormat::Object | RowFormat::U8(_) => list::<UInt8Type>(column, vec![0; width], null)?,
    }];
    if matches!(format, RowFormat::Int8(_)) {
        let zeros = list::<Float32Type>(format.scales_type()?, vec![0.0; format.slices()], None)?;
        columns.extend([Arc::clone(&zeros), zeros]);
    }
    if format.falls_back() {
        let mut exact = Exact::default();
        exact.skip();
        columns.push(exact.column()?);
    }
    Ok(columns)
}

fn halves(format: &RowFormat, values: &[f32], width: usize) -> Result<Vec<ArrayRef>, FrameError> {
    let mut halves = to_f16(values);
    let mut exact = Exact::default();
    for (row, half) in values.chunks_exact(width).zip(halves.chunks_exact_mut(width)) {
        if exceeds_f16(row) {
            half.fill(f16::ZERO);
            exact.keep(row);
        } else {
            exact.skip();
        }
    }
    let activation = list::<Float16Type>(format.column_type()?, halves, exact.encoded())?;
    Ok(vec![activation, exact.column()?])
}

fn eight_bits(format: &RowFormat, values: &[f32], width: usize) -> Result<Vec<ArrayRef>, FrameError> {
    let slices = format.slices();
    let rows = values.len() / width;
    let mut exact = Exact::default();
    let mut quantized = vec![0_i8; values.len()];
    let (mut scales, mut offsets) = (vec![0.0; rows * slices], vec![0.0; rows * slices]);
    let places = quantized.chunks_exact_mut(width).zip(
        scales
            .chunks_exact_mut(slices)
            .zip(offsets.chunks_exact_mut(slices)),
    );
    for (row, (quantized, (scales, offsets))) in values.chunks_exact(width).zip(places) {
        if quantize_row(row, quantized, scales, offsets) {
            exact.skip();
        } else {
            quantized.fill(0);
            scales.fill(0.0);
            offsets.fill(0.0);
            exact.keep(row);
        }
    }
    Ok(vec![
        list::<Int8Type>(format.column_type()?, quantized, exact.encoded())?,
        list::<Float32Type>(format.scales_type()?, scales, None)?,
        list::<Float32Type>(format.scales_type()?, offsets, None)?,
        exact.column()?,
    ])
}

/// Quantizes the slices of one row; `false` as soon as one cannot be.
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

/// The rows an encoding cannot hold, as they are.
#[derive(Default)]
struct Exact {
    there: Vec<bool>,
    lengths: Vec<usize>,
    elements: Vec<f32>,
}

impl Exact {
    /// The next row is encoded, or has failed.
    fn skip(&mut self) {
        self.there.push(false);
        self.lengths.push(0);
    }

    /// The next row travels as it is.
    fn keep(&mut self, row: &[f32]) {
        self.there.push(true);
        self.lengths.push(row.len());
        self.elements.extend_from_slice(row);
    }

    /// Which rows have an activation: those without an exact row.
    fn encoded(&self) -> Option<NullBuffer> {
        self.there
            .contains(&true)
            .then(|| self.there.iter().map(|there| !there).collect())
    }

    fn column(self) -> Result<ArrayRef, FrameError> {
        let offsets = OffsetBuffer::<i64>::from_lengths(self.lengths);
        let values = PrimitiveArray::<Float32Type>::new(ScalarBuffer::from(self.elements), None);
        let nulls = NullBuffer::from(self.there);
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
        return Err(FrameError::encode(format!("{column} is no column of tensors")));
    };
    let values = PrimitiveArray::<T>::new(ScalarBuffer::from(values), None);
    let list = FixedSizeListArray::try_new(field, length, Arc::new(values), nulls);
    Ok(Arc::new(list.map_err(FrameError::encode)?))
}
