//! Checks that weights and constants contain exactly the data that they claim, inside the file.

use super::Inadmissible;
use super::refusal::shown;
use crate::external::{is_outside, location};
use crate::onnx::{TensorProto, data_type};

/// Maximum number of axes of a weight. Kernels have three to five.
const MOST_AXES: usize = 8;

fn refused_type(code: i32) -> String {
    match code {
        0 => "an untyped tensor".into(),
        8 => "a tensor of texts".into(),
        14 | 15 => "a tensor of complex numbers".into(),
        code => format!("a tensor of the unsupported element type {code}"),
    }
}

/// Returns the size of an element in raw data, in bytes, or `None` for unsupported types.
pub(super) fn element_bytes(code: i32) -> Option<usize> {
    Some(match code {
        data_type::UINT8 | data_type::INT8 | data_type::BOOL => 1,
        data_type::UINT16 | data_type::INT16 | data_type::FLOAT16 | data_type::BFLOAT16 => 2,
        data_type::FLOAT | data_type::INT32 | data_type::UINT32 => 4,
        data_type::INT64 | data_type::UINT64 | data_type::DOUBLE => 8,
        _ => return None,
    })
}

pub(super) fn check_type(name: &str, code: i32) -> Result<(), Inadmissible> {
    match element_bytes(code) {
        Some(_) => Ok(()),
        None => Err(Inadmissible::ElementType {
            name: shown(name),
            what: refused_type(code),
        }),
    }
}

/// Checks a weight. `name` identifies it in errors.
pub(super) fn check(name: &str, tensor: &TensorProto) -> Result<(), Inadmissible> {
    if is_outside(tensor) {
        return Err(Inadmissible::ExternalData {
            tensor: shown(name),
            location: shown(location(tensor)),
        });
    }
    check_type(name, tensor.data_type)?;
    let place = format!("weight `{}`", shown(name));
    Inadmissible::check_count(place, "axes", tensor.dims.len(), MOST_AXES)?;
    size(tensor).map_err(|why| Inadmissible::WeightSize {
        tensor: shown(name),
        why,
    })
}

/// Compares the claimed dimensions with the data.
fn size(tensor: &TensorProto) -> Result<(), String> {
    let dims = &tensor.dims;
    if let Some(dim) = dims.iter().find(|&&dim| dim < 0) {
        return Err(format!("it has an axis of size {dim}"));
    }
    let claimed = dims
        .iter()
        .try_fold(1_usize, |all, &dim| all.checked_mul(usize::try_from(dim).ok()?))
        .ok_or_else(|| format!("the product of the dimensions {dims:?} overflows"))?;
    if tensor.segment.is_some() || !tensor.string_data.is_empty() {
        return Err("it contains segments or texts".into());
    }
    let (held, unit) = match tensor.raw_data.len() {
        0 => (typed(tensor)?, "elements"),
        bytes if typed(tensor)? == 0 => (bytes, "bytes"),
        _ => return Err("it contains both raw data and typed data".into()),
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
        "its dimensions {dims:?} require {claimed} elements, but its data has {held} {unit}"
    ))
}

/// Returns the number of elements in the field for the element type. Other fields must be empty.
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
        Err("the type of the data does not match the element type".into())
    }
}
