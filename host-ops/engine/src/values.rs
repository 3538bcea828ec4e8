//! Tensors of this project to values of ONNX Runtime and back.

use crate::EngineError;
use frostline_tensor::{DType, Data, Shape, Tensor};
use ort::memory::AllocationDevice;
use ort::session::SessionInputValue;
use ort::value::{
    DynTensorValueType, DynValue, PrimitiveTensorElementType, TensorElementType, TensorRef, ValueType,
};
use std::fmt::Debug;

/// The element type that tensors here have for ONNX Runtime's `kind`.
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

/// `tensor` as an input, without a copy.
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

/// `tensor` as a value of ONNX Runtime that owns its elements; they are not copied.
pub(crate) fn own(tensor: Tensor) -> Result<DynValue, EngineError> {
    fn owned<T>(shape: &Shape, values: Vec<T>) -> ort::Result<DynValue>
    where
        T: PrimitiveTensorElementType + Debug + Clone + 'static,
    {
        Ok(ort::value::Tensor::from_array((shape.dims().to_vec(), values))?.into_dyn())
    }
    let shape = tensor.shape().clone();
    let value = match tensor.into_data() {
        Data::U8(values) => owned(&shape, values),
        Data::F16(values) => owned(&shape, values),
        Data::Bf16(values) => owned(&shape, values),
        Data::F32(values) => owned(&shape, values),
        Data::F64(values) => owned(&shape, values),
        Data::I32(values) => owned(&shape, values),
        Data::I64(values) => owned(&shape, values),
    };
    value.map_err(EngineError::internal("take a tensor"))
}

/// The output `name` as a tensor: one copy out of ONNX Runtime's memory, two when that is a device's.
pub(crate) fn extract(name: &str, value: &DynValue) -> Result<Tensor, EngineError> {
    match on_cpu(value).map_err(EngineError::internal("read a tensor from its device"))? {
        Some(copy) => extract_from_cpu(name, &copy),
        None => extract_from_cpu(name, value),
    }
}

/// A copy of a tensor that lies on a device; `None` when the CPU can read it where it is.
fn on_cpu(value: &DynValue) -> ort::Result<Option<DynValue>> {
    let Ok(tensor) = value.view().downcast::<DynTensorValueType>() else {
        return Ok(None);
    };
    if tensor.memory_info().is_cpu_accessible() {
        return Ok(None);
    }
    Ok(Some(tensor.to(AllocationDevice::CPU, 0)?.into_dyn()))
}

fn extract_from_cpu(name: &str, value: &DynValue) -> Result<Tensor, EngineError> {
    let unsupported = || EngineError::OutputType {
        name: name.to_owned(),
        actual: value.dtype().to_string(),
    };
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        return Err(unsupported());
    };
    let dims: Option<Vec<usize>> = shape.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let data = match dtype(*ty).ok_or_else(unsupported)? {
        DType::U8 => elements(value).map(Data::U8),
        DType::F16 => elements(value).map(Data::F16),
        DType::Bf16 => elements(value).map(Data::Bf16),
        DType::F32 => elements(value).map(Data::F32),
        DType::F64 => elements(value).map(Data::F64),
        DType::I32 => elements(value).map(Data::I32),
        DType::I64 => elements(value).map(Data::I64),
    };
    let data = data.map_err(EngineError::internal("hand out a tensor"))?;
    Tensor::new(dims.ok_or_else(unsupported)?, data).map_err(|_| unsupported())
}

fn elements<T: PrimitiveTensorElementType + Clone>(value: &DynValue) -> ort::Result<Vec<T>> {
    Ok(value.try_extract_tensor::<T>()?.1.to_vec())
}
