//! Conversion between this project's tensors and values of ONNX Runtime.

use crate::EngineError;
use crate::tensor_spec::TensorSpec;
use bytemuck::NoUninit;
use frostline_tensor::{DType, Data, Normalization, OpError, Shape, Tensor};
use half::{bf16, f16};
use ort::memory::{AllocationDevice, Allocator};
use ort::session::SessionInputValue;
use ort::value::{
    DynTensor, DynTensorValueType, DynValue, PrimitiveTensorElementType, TensorElementType, TensorRef,
    ValueType,
};
use std::fmt::Debug;

/// Returns the element type for ONNX Runtime's `kind`, or `None` if [`Tensor`] does not support it.
pub(crate) fn dtype(kind: TensorElementType) -> Option<DType> {
    Some(match kind {
        TensorElementType::Uint8 => DType::U8,
        TensorElementType::Float16 => DType::F16,
        TensorElementType::Bfloat16 => DType::Bf16,
        TensorElementType::Float32 => DType::F32,
        TensorElementType::Float64 => DType::F64,
        TensorElementType::Int32 => DType::I32,
        TensorElementType::Int64 => DType::I64,
        _ => return None,
    })
}

pub(crate) const fn element_type(dtype: DType) -> TensorElementType {
    match dtype {
        DType::U8 => TensorElementType::Uint8,
        DType::F16 => TensorElementType::Float16,
        DType::Bf16 => TensorElementType::Bfloat16,
        DType::F32 => TensorElementType::Float32,
        DType::F64 => TensorElementType::Float64,
        DType::I32 => TensorElementType::Int32,
        DType::I64 => TensorElementType::Int64,
    }
}

/// Borrows `tensor` as a session input without copying it.
pub(crate) fn borrow(tensor: &Tensor) -> Result<SessionInputValue<'_>, EngineError> {
    fn view<'a, T>(shape: &Shape, values: &'a [T]) -> ort::Result<SessionInputValue<'a>>
    where
        T: PrimitiveTensorElementType + Debug + Clone + 'static,
    {
        Ok(TensorRef::from_array_view((shape.dims().to_vec(), values))?.into())
    }
    let shape = tensor.shape();
    let value = match tensor.data() {
        Data::U8(values) => view(shape, values),
        Data::F16(values) => view(shape, values),
        Data::Bf16(values) => view(shape, values),
        Data::F32(values) => view(shape, values),
        Data::F64(values) => view(shape, values),
        Data::I32(values) => view(shape, values),
        Data::I64(values) => view(shape, values),
    };
    value.map_err(EngineError::internal("take a tensor"))
}

/// Copies `tensor` to memory that ONNX Runtime allocates and that an execution may overwrite.
pub(crate) fn copy_to_value(tensor: &Tensor) -> ort::Result<DynValue> {
    let kind = element_type(tensor.dtype());
    let dims = tensor.shape().dims();
    let mut value = DynTensor::new(&Allocator::default(), kind, dims)?;
    write(tensor, &mut value)?;
    Ok(value.into_dyn())
}

/// A tensor in ONNX Runtime's memory.
pub(crate) struct View<'a> {
    pub(crate) spec: TensorSpec,
    /// The elements, little-endian.
    pub(crate) bytes: &'a [u8],
}

impl View<'_> {
    /// Copies the elements to a [`Tensor`].
    pub(crate) fn tensor(&self) -> Result<Tensor, OpError> {
        let data = Data::from_bytes(self.spec.dtype, self.bytes);
        let data = data.ok_or_else(|| OpError::runtime("the engine's output ends within an element"))?;
        Ok(Tensor::new(self.spec.shape.clone(), data)?)
    }
}

/// Copies the output `name` to a tensor. An output in a device's memory is copied twice.
pub(crate) fn extract(name: &str, value: &DynValue) -> Result<Tensor, EngineError> {
    view(name, value, |view| view.tensor())?.map_err(|_| unsupported(name, value))
}

/// Calls `take` with the output `name`, which is copied only if it is in a device's memory.
pub(crate) fn view<T>(
    name: &str,
    value: &DynValue,
    take: impl FnOnce(View<'_>) -> T,
) -> Result<T, EngineError> {
    match on_cpu(value).map_err(EngineError::internal("read a tensor from its device"))? {
        Some(copy) => view_on_cpu(name, &copy).map(take),
        None => view_on_cpu(name, value).map(take),
    }
}

/// Calls `take` with the output `name` in the output buffer.
pub(crate) fn view_bound<T>(
    name: &str,
    buffer: Option<&DynTensor>,
    take: impl FnOnce(View<'_>) -> T,
) -> Result<T, EngineError> {
    let value = buffer
        .ok_or_else(|| EngineError::UnknownOutput {
            name: name.to_owned(),
            known: String::new(),
        })?
        .view()
        .into_dyn();
    view_on_cpu(name, &value).map(take)
}

/// Returns the type and shape of a tensor, if this project supports the type.
pub(crate) fn spec(tensor: &DynTensor) -> Option<TensorSpec> {
    let dims: Option<Vec<usize>> = tensor
        .shape()
        .iter()
        .map(|&dim| usize::try_from(dim).ok())
        .collect();
    Some(TensorSpec {
        dtype: dtype(*tensor.data_type())?,
        shape: Shape::new(dims?),
    })
}

/// Copies a tensor from a device's memory. Returns `None` if the CPU can read the tensor directly.
fn on_cpu(value: &DynValue) -> ort::Result<Option<DynValue>> {
    let Ok(tensor) = value.view().downcast::<DynTensorValueType>() else {
        return Ok(None);
    };
    if tensor.memory_info().is_cpu_accessible() {
        return Ok(None);
    }
    Ok(Some(tensor.to(AllocationDevice::CPU, 0)?.into_dyn()))
}

fn view_on_cpu<'a>(name: &str, value: &'a DynValue) -> Result<View<'a>, EngineError> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        return Err(unsupported(name, value));
    };
    let dims: Option<Vec<usize>> = shape.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dtype = dtype(*ty).ok_or_else(|| unsupported(name, value))?;
    let bytes = match dtype {
        DType::U8 => bytes::<u8>(value),
        DType::F16 => bytes::<f16>(value),
        DType::Bf16 => bytes::<bf16>(value),
        DType::F32 => bytes::<f32>(value),
        DType::F64 => bytes::<f64>(value),
        DType::I32 => bytes::<i32>(value),
        DType::I64 => bytes::<i64>(value),
    };
    let bytes = bytes.map_err(EngineError::internal("read a tensor"))?;
    let shape = Shape::new(dims.ok_or_else(|| unsupported(name, value))?);
    // Readers of the view rely on its shape to compute the number of bytes.
    if shape.bytes(dtype.size()) != Ok(bytes.len()) {
        return Err(unsupported(name, value));
    }
    let spec = TensorSpec { dtype, shape };
    Ok(View { spec, bytes })
}

/// Copies the elements of `tensor` to `value`, which must have the same type and shape.
pub(crate) fn write(tensor: &Tensor, value: &mut DynTensor) -> ort::Result<()> {
    fn copy<T: PrimitiveTensorElementType + Copy>(from: &[T], to: &mut DynTensor) -> ort::Result<()> {
        to.try_extract_tensor_mut::<T>()?.1.copy_from_slice(from);
        Ok(())
    }
    match tensor.data() {
        Data::U8(values) => copy(values, value),
        Data::F16(values) => copy(values, value),
        Data::Bf16(values) => copy(values, value),
        Data::F32(values) => copy(values, value),
        Data::F64(values) => copy(values, value),
        Data::I32(values) => copy(values, value),
        Data::I64(values) => copy(values, value),
    }
}

/// Writes the normalized `pixels` to `value`, an `f32` tensor of the same shape.
pub(crate) fn write_pixels(
    pixels: &Tensor,
    normalization: Normalization,
    value: &mut DynTensor,
) -> ort::Result<()> {
    let floats = value.try_extract_tensor_mut::<f32>()?.1;
    normalization.write(pixels, floats).map_err(ort::Error::wrap)
}

/// Sets all elements to 0.
pub(crate) fn clear(value: &mut DynTensor) -> ort::Result<()> {
    fn fill<T: PrimitiveTensorElementType + Clone + Default>(value: &mut DynTensor) -> ort::Result<()> {
        value.try_extract_tensor_mut::<T>()?.1.fill(T::default());
        Ok(())
    }
    match dtype(*value.data_type()) {
        Some(DType::U8) => fill::<u8>(value),
        Some(DType::F16) => fill::<half::f16>(value),
        Some(DType::Bf16) => fill::<half::bf16>(value),
        Some(DType::F32) => fill::<f32>(value),
        Some(DType::F64) => fill::<f64>(value),
        Some(DType::I32) => fill::<i32>(value),
        Some(DType::I64) => fill::<i64>(value),
        None => Ok(()),
    }
}

fn bytes<T: PrimitiveTensorElementType + NoUninit>(value: &DynValue) -> ort::Result<&[u8]> {
    Ok(bytemuck::cast_slice(value.try_extract_tensor::<T>()?.1))
}

fn unsupported(name: &str, value: &DynValue) -> EngineError {
    EngineError::OutputType {
        name: name.to_owned(),
        actual: value.dtype().to_string(),
    }
}
