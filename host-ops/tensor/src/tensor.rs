use crate::{DType, Shape, ShapeError};
use half::{bf16, f16};
use std::borrow::Borrow;

/// Elements of a tensor in row-major order. Vectors of the element type guarantee alignment.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Data {
    U8(Vec<u8>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

/// Runs `$body` with `$values` bound to the vector inside `$data`, whatever its type.
macro_rules! each {
    ($data:expr, $values:ident => $body:expr) => {
        match $data {
            Data::U8($values) => $body,
            Data::F16($values) => $body,
            Data::Bf16($values) => $body,
            Data::F32($values) => $body,
            Data::F64($values) => $body,
            Data::I32($values) => $body,
            Data::I64($values) => $body,
        }
    };
}

impl Data {
    /// Returns the element type.
    pub const fn dtype(&self) -> DType {
        match self {
            Self::U8(_) => DType::U8,
            Self::F16(_) => DType::F16,
            Self::Bf16(_) => DType::Bf16,
            Self::F32(_) => DType::F32,
            Self::F64(_) => DType::F64,
            Self::I32(_) => DType::I32,
            Self::I64(_) => DType::I64,
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements as little-endian bytes without copying them.
    pub fn as_bytes(&self) -> &[u8] {
        each!(self, values => bytemuck::cast_slice(values))
    }

    /// Returns `count` zeros of type `dtype`.
    pub fn zeros(dtype: DType, count: usize) -> Self {
        match dtype {
            DType::U8 => Self::U8(vec![0; count]),
            DType::F16 => Self::F16(vec![f16::ZERO; count]),
            DType::Bf16 => Self::Bf16(vec![bf16::ZERO; count]),
            DType::F32 => Self::F32(vec![0.0; count]),
            DType::F64 => Self::F64(vec![0.0; count]),
            DType::I32 => Self::I32(vec![0; count]),
            DType::I64 => Self::I64(vec![0; count]),
        }
    }

    /// Returns the elements as mutable little-endian bytes.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        each!(self, values => bytemuck::cast_slice_mut(values))
    }

    /// Converts the elements to `dtype`, as [`Tensor::cast`] does.
    pub fn cast(&self, dtype: DType) -> Self {
        match self {
            same if same.dtype() == dtype => same.clone(),
            // Only these elements would be rounded twice, to f64 and to f32.
            Self::I64(values) if dtype == DType::F32 => {
                Self::F32(values.iter().map(|&value| value as f32).collect())
            }
            Self::U8(values) => convert(values.iter().map(|&value| value.into()), dtype),
            Self::I32(values) => convert(values.iter().map(|&value| value.into()), dtype),
            Self::I64(values) => convert(values.iter().map(|&value| value as f64), dtype),
            Self::F16(values) => convert(values.iter().map(|value| value.to_f64()), dtype),
            Self::Bf16(values) => convert(values.iter().map(|value| value.to_f64()), dtype),
            Self::F32(values) => convert(values.iter().map(|&value| value.into()), dtype),
            Self::F64(values) => convert(values.iter().copied(), dtype),
        }
    }

    /// Copies elements of type `dtype` from little-endian bytes. Returns `None` if the length is not a
    /// multiple of the element size.
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(dtype.size()) {
            return None;
        }
        Some(match dtype {
            DType::U8 => Self::U8(bytes.to_vec()),
            DType::F16 => Self::F16(collect(bytes)),
            DType::Bf16 => Self::Bf16(collect(bytes)),
            DType::F32 => Self::F32(collect(bytes)),
            DType::F64 => Self::F64(collect(bytes)),
            DType::I32 => Self::I32(collect(bytes)),
            DType::I64 => Self::I64(collect(bytes)),
        })
    }
}

/// The conversions to integers truncate toward zero and saturate, and NaN becomes 0.
fn convert(values: impl Iterator<Item = f64>, dtype: DType) -> Data {
    match dtype {
        DType::U8 => Data::U8(values.map(|value| value as u8).collect()),
        DType::I32 => Data::I32(values.map(|value| value as i32).collect()),
        DType::I64 => Data::I64(values.map(|value| value as i64).collect()),
        DType::F16 => Data::F16(values.map(f16::from_f64).collect()),
        DType::Bf16 => Data::Bf16(values.map(bf16::from_f64).collect()),
        DType::F32 => Data::F32(values.map(|value| value as f32).collect()),
        DType::F64 => Data::F64(values.collect()),
    }
}

/// Copies the bytes into elements. Aligned bytes are copied directly, without zeroing the memory first.
fn collect<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(bytes: &[u8]) -> Vec<T> {
    let aligned = bytemuck::try_cast_slice(bytes).map(<[T]>::to_vec);
    aligned.unwrap_or_else(|_| bytemuck::pod_collect_to_vec(bytes))
}

/// An owned, dense, row-major tensor. The shape always matches the number of elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    shape: Shape,
    data: Data,
}

impl Tensor {
    /// Returns a tensor of `shape` with the elements `data`.
    ///
    /// # Errors
    /// Returns [`ShapeError`] if the element counts differ or the shape's element count overflows.
    pub fn new(shape: impl Into<Shape>, data: Data) -> Result<Self, ShapeError> {
        let shape = shape.into();
        let expected = shape.elements()?;
        if expected != data.len() {
            return Err(ShapeError::Length {
                shape,
                expected,
                actual: data.len(),
            });
        }
        Ok(Self { shape, data })
    }

    /// Returns a tensor of zeros. It allocates memory for all elements, so check a shape from an untrusted
    /// source against a limit first.
    ///
    /// # Errors
    /// Returns [`ShapeError::Overflow`] if the number of elements overflows.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Self, ShapeError> {
        let shape = shape.into();
        let data = Data::zeros(dtype, shape.elements()?);
        Ok(Self { shape, data })
    }

    /// Returns a tensor to be written in place. It reuses the memory of `spare` if the element types match
    /// and the memory is large enough. The initial contents are unspecified.
    ///
    /// # Errors
    /// Returns [`ShapeError::Overflow`] if the number of elements overflows, and [`ShapeError::Memory`] if
    /// the allocation fails.
    pub fn in_memory_of(
        spare: Option<Self>,
        dtype: DType,
        shape: impl Into<Shape>,
    ) -> Result<Self, ShapeError> {
        let shape = shape.into();
        let count = shape.elements()?;
        let mut data = match spare {
            Some(spare) if spare.data.dtype() == dtype => spare.data,
            _ => Data::zeros(dtype, 0),
        };
        match each!(&mut data, values => resize(values, count)) {
            true => Ok(Self { shape, data }),
            false => Err(ShapeError::Memory { shape }),
        }
    }

    /// Returns an `f32` tensor.
    pub fn f32(shape: impl Into<Shape>, values: Vec<f32>) -> Result<Self, ShapeError> {
        Self::new(shape, Data::F32(values))
    }

    /// Returns an `i64` tensor.
    pub fn i64(shape: impl Into<Shape>, values: Vec<i64>) -> Result<Self, ShapeError> {
        Self::new(shape, Data::I64(values))
    }

    /// Returns the dimensions.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.data.dtype()
    }

    /// Returns the elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Returns the elements and drops the shape.
    pub fn into_data(self) -> Data {
        self.data
    }

    /// Returns the elements as little-endian bytes without copying them.
    pub fn as_bytes(&self) -> &[u8] {
        self.data.as_bytes()
    }

    /// Returns the elements as mutable little-endian bytes.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.data.as_bytes_mut()
    }

    /// Returns the size of the elements in bytes.
    pub fn byte_len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Returns the elements if they are `f32`.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.data {
            Data::F32(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the elements if they are `i64`.
    pub fn as_i64(&self) -> Option<&[i64]> {
        match &self.data {
            Data::I64(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the elements if they are `u8`.
    pub fn as_u8(&self) -> Option<&[u8]> {
        match &self.data {
            Data::U8(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the number of rows in the batch.
    pub fn rows(&self) -> Result<usize, ShapeError> {
        self.shape.rows()
    }

    /// Copies the rows `start..end` into a new tensor.
    pub fn slice_rows(&self, start: usize, end: usize) -> Result<Self, ShapeError> {
        let rows = self.rows()?;
        let row = self.shape.row()?;
        let width = row.elements()?;
        // Without rows, the size of a row is not limited by memory.
        let size = width.saturating_mul(self.dtype().size());
        let inside = (start <= end && end <= rows).then(|| start * size..end * size);
        let bytes = inside.and_then(|range| self.as_bytes().get(range));
        let data = bytes.and_then(|bytes| Data::from_bytes(self.dtype(), bytes));
        let data = data.ok_or(ShapeError::Range { start, end, rows })?;
        Self::new(row.batched(end - start), data)
    }

    /// Joins batches along the first axis without reordering rows.
    ///
    /// # Errors
    /// Returns [`ShapeError::Rows`] if the rows differ in shape or type, and [`ShapeError::Scalar`] if
    /// `batches` is empty or contains a scalar.
    pub fn concat_rows<T: Borrow<Self>>(batches: &[T]) -> Result<Self, ShapeError> {
        let batches = batches.iter().map(Borrow::borrow);
        let first: &Self = batches.clone().next().ok_or(ShapeError::Scalar)?;
        let row = first.shape.row()?;
        let mut rows = 0_usize;
        for batch in batches.clone() {
            if batch.dtype() != first.dtype() || batch.shape.row()? != row {
                return Err(ShapeError::Rows {
                    left: first.describe(),
                    right: batch.describe(),
                });
            }
            rows += batch.rows()?;
        }
        let mut joined = Self::in_memory_of(None, first.dtype(), row.batched(rows))?;
        let mut rest = joined.as_bytes_mut();
        for batch in batches {
            let Some((part, after)) = rest.split_at_mut_checked(batch.byte_len()) else {
                break;
            };
            part.copy_from_slice(batch.as_bytes());
            rest = after;
        }
        Ok(joined)
    }

    /// Converts the elements to `dtype`. Floats are truncated toward zero when they become integers, and values
    /// beyond the range of the type become its smallest or largest.
    pub fn cast(&self, dtype: DType) -> Self {
        Self {
            shape: self.shape.clone(),
            data: self.data.cast(dtype),
        }
    }

    /// Returns type and shape for messages, such as `f32[8, 512]`.
    pub fn describe(&self) -> String {
        format!("{}{}", self.dtype(), self.shape)
    }
}

/// Resizes `values` to `count` elements. Contents are lost if new memory is needed. Returns false if the
/// allocation fails.
fn resize<T: bytemuck::Zeroable + Clone>(values: &mut Vec<T>, count: usize) -> bool {
    if count <= values.capacity() {
        values.resize(count, T::zeroed());
        return true;
    }
    // Free the old memory first, so that both are never allocated at the same time.
    *values = Vec::new();
    let fresh = bytemuck::allocation::try_zeroed_vec(count);
    fresh.map(|fresh| *values = fresh).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_overflows_is_refused() {
        let shape = Shape::new([usize::MAX, 2]);
        assert!(matches!(
            Tensor::f32(shape, vec![]),
            Err(ShapeError::Overflow { .. })
        ));
    }

    #[test]
    fn a_shape_that_lies_is_refused() {
        assert!(matches!(
            Tensor::f32([2, 3], vec![0.0; 5]),
            Err(ShapeError::Length {
                expected: 6,
                actual: 5,
                ..
            })
        ));
    }

    #[test]
    fn slicing_and_joining_rows_are_inverse() {
        let whole = Tensor::f32([3, 2], (0_u8..6).map(f32::from).collect()).unwrap();
        let parts = [whole.slice_rows(0, 1).unwrap(), whole.slice_rows(1, 3).unwrap()];
        assert_eq!(Tensor::concat_rows(&parts).unwrap(), whole);
        assert!(whole.slice_rows(2, 4).is_err());
    }

    #[test]
    fn casts_truncate_and_saturate() {
        let floats = Tensor::f32([1, 6], vec![-1.5, 0.9, 300.0, 1e12, f32::NAN, 7.0]).unwrap();
        assert_eq!(floats.cast(DType::U8).as_u8(), Some(&[0, 0, 255, 255, 0, 7][..]));
        assert_eq!(
            floats.cast(DType::I32).data(),
            &Data::I32(vec![-1, 0, 300, i32::MAX, 0, 7])
        );
        let integers = Tensor::i64([1, 3], vec![i64::MIN, 1 << 24, i64::MAX]).unwrap();
        assert_eq!(
            integers.cast(DType::I32).data(),
            &Data::I32(vec![i32::MIN, 1 << 24, i32::MAX])
        );
        assert_eq!(integers.cast(DType::U8).as_u8(), Some(&[0, 255, 255][..]));
        assert_eq!(integers.cast(DType::F32).as_f32().unwrap()[1], 16_777_216.0);
        assert_eq!(integers.cast(DType::I64), integers);
        let halves = floats.cast(DType::F16).cast(DType::F32);
        assert_eq!(halves.as_f32().unwrap()[2], 300.0);
    }

    #[test]
    fn a_tensor_can_be_filled_in_place() {
        use DType::{Bf16, F16, F32, F64, I32, I64, U8};
        for dtype in [U8, F16, Bf16, F32, F64, I32, I64] {
            let mut tensor = Tensor::zeros(dtype, [2, 3]).unwrap();
            tensor.as_bytes_mut().fill(1);
            assert_eq!(tensor.as_bytes(), vec![1; 6 * dtype.size()]);
            assert_eq!(tensor.describe(), format!("{dtype}[2, 3]"));
        }
        assert!(Tensor::zeros(F32, [usize::MAX, 2]).is_err());
    }

    #[test]
    fn a_failed_allocation_is_an_error() {
        let refused = Tensor::in_memory_of(None, DType::U8, [1 << 62]);
        assert!(matches!(refused, Err(ShapeError::Memory { .. })));
    }

    #[test]
    fn bytes_round_trip() {
        let tensor = Tensor::i64([2], vec![-1, i64::MAX]).unwrap();
        assert_eq!(
            Data::from_bytes(DType::I64, tensor.as_bytes()).as_ref(),
            Some(tensor.data())
        );
        assert_eq!(Data::from_bytes(DType::F32, &[0; 5]), None);
    }
}
