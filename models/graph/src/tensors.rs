//! Conversions between ONNX's tensors and Frostline's.

use crate::GraphError;
use crate::onnx::{TensorProto, data_type};
use bytes::Bytes;
use frostline_tensor::{DType, Data, Tensor};
use half::{bf16, f16};

/// Returns the [`DType`] of an ONNX element type, or `None` for types that tensors do not support (text,
/// bool, complex, ...).
pub fn dtype_of(code: i32) -> Option<DType> {
    use DType::{Bf16, F16, F32, F64, I32, I64, U8};
    let mut types = [Bf16, F16, F32, F64, I32, I64, U8].into_iter();
    types.find(|dtype| code_of(*dtype) == code)
}

/// Returns ONNX's code of an element type.
pub fn code_of(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => data_type::FLOAT,
        DType::U8 => data_type::UINT8,
        DType::I32 => data_type::INT32,
        DType::I64 => data_type::INT64,
        DType::F16 => data_type::FLOAT16,
        DType::F64 => data_type::DOUBLE,
        DType::Bf16 => data_type::BFLOAT16,
    }
}

/// Creates an initializer from the little-endian bytes of its elements.
pub fn from_bytes(name: &str, data_type: i32, dims: Vec<i64>, bytes: impl Into<Bytes>) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type,
        dims,
        raw_data: bytes.into(),
        ..TensorProto::default()
    }
}

pub(crate) fn dims_of(proto: &TensorProto) -> Result<Vec<usize>, GraphError> {
    proto
        .dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| bad(proto, format!("dimension {dim} is invalid"))))
        .collect()
}

/// Copies an initializer into a tensor.
///
/// # Errors
/// Returns [`GraphError::Weight`] if the element type is not supported or the data does not fit the shape.
pub fn from_proto(proto: &TensorProto) -> Result<Tensor, GraphError> {
    let code = proto.data_type;
    let dtype = dtype_of(code).ok_or_else(|| bad(proto, format!("element type {code} is not supported")))?;
    let data = elements(proto, dtype).ok_or_else(|| {
        bad(
            proto,
            "the size of the data is not a multiple of the element size",
        )
    })?;
    Tensor::new(dims_of(proto)?, data).map_err(|error| bad(proto, error))
}

/// Reads the elements from the field that contains them.
fn elements(proto: &TensorProto, dtype: DType) -> Option<Data> {
    if !proto.raw_data.is_empty() {
        return Data::from_bytes(dtype, &proto.raw_data);
    }
    Some(match dtype {
        DType::F32 => Data::F32(proto.float_data.clone()),
        DType::F64 => Data::F64(proto.double_data.clone()),
        DType::I32 => Data::I32(proto.int32_data.clone()),
        DType::I64 => Data::I64(proto.int64_data.clone()),
        DType::U8 => Data::U8(
            proto
                .int32_data
                .iter()
                .map(|&value| u8::try_from(value).unwrap_or_default())
                .collect(),
        ),
        DType::F16 => Data::F16(halves(proto).map(f16::from_bits).collect()),
        DType::Bf16 => Data::Bf16(halves(proto).map(bf16::from_bits).collect()),
    })
}

/// Reads the bits of 16-bit numbers, which are stored as 32-bit integers.
fn halves(proto: &TensorProto) -> impl Iterator<Item = u16> {
    proto
        .int32_data
        .iter()
        .map(|&bits| u16::try_from(bits & 0xffff).unwrap_or_default())
}

/// Converts a floating-point tensor to another floating-point type, rounding to nearest. Returns `None` if
/// one of the types is not floating point.
pub fn to_float(tensor: &Tensor, dtype: DType) -> Option<Tensor> {
    let mut types = [tensor.dtype(), dtype].into_iter();
    let are_floats = types.all(|dtype| data_type::is_float(code_of(dtype)));
    are_floats.then(|| tensor.cast(dtype))
}

/// Converts other floating-point tensors to `f32`, and returns all others unchanged.
pub fn in_single_precision(tensor: Tensor) -> Tensor {
    if tensor.dtype() == DType::F32 {
        return tensor;
    }
    to_float(&tensor, DType::F32).unwrap_or(tensor)
}

/// Reads the elements of an integer tensor with up to 64 bits per element. Returns `None` for other types,
/// and if the data does not fit the shape.
pub fn integers(proto: &TensorProto) -> Option<Vec<i64>> {
    let raw = &proto.raw_data;
    let values: Vec<i64> = match proto.data_type {
        data_type::INT64 if raw.is_empty() => proto.int64_data.clone(),
        data_type::INT8 | data_type::UINT8 | data_type::INT16 | data_type::UINT16 | data_type::INT32
            if raw.is_empty() =>
        {
            proto.int32_data.iter().map(|&value| i64::from(value)).collect()
        }
        data_type::INT8 => raw.iter().map(|&byte| i64::from(byte.cast_signed())).collect(),
        data_type::UINT8 => raw.iter().map(|&byte| i64::from(byte)).collect(),
        data_type::INT16 => little_endian(raw, |bytes| i16::from_le_bytes(bytes).into()),
        data_type::UINT16 => little_endian(raw, |bytes| u16::from_le_bytes(bytes).into()),
        data_type::INT32 => little_endian(raw, |bytes| i32::from_le_bytes(bytes).into()),
        data_type::INT64 => little_endian(raw, i64::from_le_bytes),
        _ => return None,
    };
    let expected: usize = dims_of(proto).ok()?.iter().product();
    (values.len() == expected).then_some(values)
}

fn little_endian<const N: usize>(raw: &[u8], read: fn([u8; N]) -> i64) -> Vec<i64> {
    let (chunks, _) = raw.as_chunks::<N>();
    chunks.iter().map(|bytes| read(*bytes)).collect()
}

/// Returns floating-point elements without loss, or `None` for integers.
pub fn numbers(data: &Data) -> Option<Vec<f64>> {
    let is_float = data_type::is_float(code_of(data.dtype()));
    match data.cast(DType::F64) {
        Data::F64(values) if is_float => Some(values),
        _ => None,
    }
}

fn bad(proto: &TensorProto, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> GraphError {
    GraphError::Weight {
        name: proto.name.clone(),
        why: why.into(),
    }
}
