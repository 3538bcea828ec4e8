//! Weights and constants: each holds exactly the data it claims, inside the file.

use super::Inadmissible;
use super::refusal::shown;
use crate::external::{is_outside, location};
use crate::onnx::{TensorProto, data_type};

/// Axes a weight may have: kernels have three to five.
const MOST_AXES: usize = 8;

/// What ONNX calls its element types, where they are refused.
fn refused_type(code: i32) -> String {
    match code {
        0 => "of no element type".into(),
        8 => "a tensor of texts".into(),
        14 | 15 => "a tensor of complex numbers".into(),
        code => format!("of element type {code}, which is not taken"),
    }
}

/// Bytes of one element in raw data; `None` for types that are not taken.
pub(super) fn element_bytes(code: i32) -> Option<usize> {
    Some(match code {
        data_type::UINT8 | data_type::INT8 | data_type::BOOL => 1,
        data_type::UINT16 | data_type::INT16 | data_type::FLOAT16 | data_type::BFLOAT16 => 2,
        data_type::FLOAT | data_type::INT32 | data_type::UINT32 => 4,
        data_type::INT64 | data_type::UINT64 | data_type::DOUBLE => 8,
        _ => return None,
    })
}

/// Refuses an element type that is not taken, of the value `name`.
pub(super) fn check_type(name: &str, code: i32) -> Result<(), Inadmissible> {
    match element_bytes(code) {
        Some(_) => Ok(()),
        None => Err(Inadmissible::ElementType {
            name: shown(name),
            what: refused_type(code),
        }),
    }
}

/// Checks one weight; `name` is what errors call it.
pub(super) fn check(name: &str, tensor: &TensorProto) -> Result<(), Inadmissible> {
    if is_outside(tensor) {
        return Err(Inadmissible::ExternalData {
            tensor: shown(name),
            location: shown(location(tensor)),
        });
    }
    check_type(name, tensor.data_type)?;
    if tensor.dims.len() > MOST_AXES {
        return Err(Inadmissible::Count {
            place: format!("weight `{}`", shown(name)),
            what: "axes",
            count: tensor.dims.len(),
            limit: MOST_AXES,
        });
    }
    size(tensor).map_err(|why| Inadmissible::WeightSize {
        tensor: shown(name),
        why,
    })
}

/// Compares the claimed dimensions with the data.
fn size(tensor: &TensorProto) -> Result<(), String> {
    let dims = &tensor.dims;
    if let Some(dim) = dims.iter().find(|&&dim| dim < 0) {
        return Err(format!("it claims an axis of {dim}"));
    }
    let claimed = dims
        .iter()
        .try_fold(1_usize, |all, &dim| all.checked_mul(usize::try_from(dim).ok()?))
        .ok_or_else(|| format!("its dimensions {dims:?} multiply to more than can be counted"))?;
    if tensor.segment.is_some() || !tensor.string_data.is_empty() {
        return Err("it holds segments or texts".into());
    }
    let (held, unit) = match tensor.raw_data.len() {
        0 => (typed(tensor)?, "elements"),
        bytes if typed(tensor)? == 0 => (bytes, "bytes"),
        _ => return Err("it holds raw data and typed data at once".into()),
    };
    let size = if unit == "bytes" {
        element_bytes(tensor.data_type)
    } else {
        Some(1)
    };
    let expected = size.and_then(|size| claimed.checked_mul(size));
    if expected == Some(held) {
        return Ok(());
    }
    Err(format!(
        "its dimensions {dims:?} claim {claimed} elements, its data has {held} {unit}"
    ))
}

/// Elements in the field that the element type belongs in; no other may hold any.
fn typed(tensor: &TensorProto) -> Result<usize, String> {
    let fields = [
        tensor.float_data.len(),
        tensor.int32_data.len(),
        tensor.int64_data.len(),
        tensor.double_data.len(),
        tensor.uint64_data.len(),
    ];
    let own = match tensor.data_type {
        data_type::FLOAT => tensor.float_data.len(),
        data_type::INT64 => tensor.int64_data.len(),
        data_type::DOUBLE => tensor.double_data.len(),
        data_type::UINT32 | data_type::UINT64 => tensor.uint64_data.len(),
        _ => tensor.int32_data.len(),
    };
    if fields.iter().sum::<usize>() == own {
        Ok(own)
    } else {
        Err("it holds data of another type than its own".into())
    }
}
