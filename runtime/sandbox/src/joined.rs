//! Joins the named tensors of samples into one row per sample.
//!
//! A model with several inputs reaches the host with one input, which contains them in a flat form, and a row on
//! the wire is one tensor as well. All values are `f32` there.

use crate::allowance::{Allowance, Charge};
use crate::breach::ImportError;
use crate::error::SandboxError;
use crate::state::GuestTensor;
use frostline_tensor::{DType, Data, OpError, Shape, Tensor};
use frostline_wire::TensorInfo;
use std::borrow::Cow;

/// Largest integer up to which all integers are exact in `f32`.
const LARGEST_EXACT: u64 = 1 << 24;

/// Joins the inputs of a model. Consumes them, even on failure.
///
/// # Errors
/// Returns an error to the guest if the tensors differ from `infos` or are not exact in `f32`.
pub(crate) fn input(
    inputs: Vec<(String, GuestTensor)>,
    infos: &[TensorInfo],
    allowance: &Allowance,
) -> Result<GuestTensor, ImportError> {
    let tensors: Vec<(&str, &Tensor)> = inputs
        .iter()
        .map(|(name, held)| (name.as_str(), &held.tensor))
        .collect();
    if inputs.iter().any(|(_, held)| held.pixels.is_some()) {
        return Err(
            OpError::runtime("cannot use normalized pixels as a joint input; cast them first").into(),
        );
    }
    let (tensor, charge) = join(&tensors, infos, allowance)?;
    Ok(GuestTensor {
        tensor,
        pixels: None,
        charge,
    })
}

/// Joins the tensors that a guest returns for a cut. A single `f32` tensor is returned as it is.
///
/// # Errors
/// Returns [`SandboxError::BadAnswer`] if the tensors differ from `infos` or are not exact in `f32`.
pub(crate) fn activations(
    mut tensors: Vec<(String, Tensor)>,
    infos: &[TensorInfo],
    allowance: &Allowance,
) -> Result<Tensor, SandboxError> {
    let is_row = |(name, _): &(String, Tensor)| match infos {
        [info] => info.dtype == DType::F32 && info.name == *name,
        _ => false,
    };
    if tensors.len() == 1
        && let Some((_, tensor)) = tensors.pop_if(|tensor| is_row(tensor))
    {
        return Ok(tensor);
    }
    let named: Vec<(&str, &Tensor)> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let (tensor, _) = join(&named, infos, allowance).map_err(SandboxError::from_import)?;
    Ok(tensor)
}

/// Checks names, types and shapes, and returns the number of rows.
fn rows(tensors: &[(&str, &Tensor)], infos: &[TensorInfo]) -> Result<usize, OpError> {
    let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
    let expected = names.join(", ");
    if tensors.len() != infos.len() {
        return Err(OpError::runtime(format!(
            "expected the tensors {expected}, got {} tensors",
            tensors.len()
        )));
    }
    let mut rows = None;
    for info in infos {
        let tensor = find(tensors, info)?;
        let batch = tensor.rows()?;
        let shape = Shape::new(info.shape.clone()).batched(batch);
        if tensor.dtype() != info.dtype || *tensor.shape() != shape {
            return Err(OpError::runtime(format!(
                "the tensor {:?} is {}, expected {}{:?} per sample",
                info.name,
                tensor.describe(),
                info.dtype,
                info.shape
            )));
        }
        if *rows.get_or_insert(batch) != batch {
            return Err(OpError::runtime(format!(
                "the tensors {expected} have different numbers of rows"
            )));
        }
    }
    Ok(rows.unwrap_or(0))
}

fn find<'a>(tensors: &[(&str, &'a Tensor)], info: &TensorInfo) -> Result<&'a Tensor, OpError> {
    let found = tensors.iter().find(|(name, _)| *name == info.name);
    found
        .map(|(_, tensor)| *tensor)
        .ok_or_else(|| OpError::runtime(format!("the tensor {:?} is missing", info.name)))
}

/// Copies tensors into rows.
fn join(
    tensors: &[(&str, &Tensor)],
    infos: &[TensorInfo],
    allowance: &Allowance,
) -> Result<(Tensor, Charge), ImportError> {
    let rows = rows(tensors, infos)?;
    // The tensors of a cut were checked when the call was created.
    let row = TensorInfo::row_shape(infos)
        .ok_or_else(|| OpError::runtime("model inputs exceed the maximum row size"))?;
    let shape = row.batched(rows);
    let bytes = shape.bytes(DType::F32.size()).map_err(OpError::from)?;
    // Converting a part needs up to the same memory again.
    let mut charge = allowance.charge_tensor(bytes.saturating_mul(2))?;
    let width = row.elements().map_err(OpError::from)?;
    let mut values = vec![0.0_f32; rows.saturating_mul(width)];
    let mut start = 0;
    for info in infos {
        let tensor = find(tensors, info)?;
        check_exact(tensor, &info.name)?;
        let part = Shape::new(info.shape.clone()).elements().map_err(OpError::from)?;
        let floats = match tensor.dtype() {
            DType::F32 => Cow::Borrowed(tensor),
            _ => Cow::Owned(tensor.cast(DType::F32)),
        };
        let sources = floats.as_f32().unwrap_or_default().chunks_exact(part.max(1));
        for (target, source) in values.chunks_exact_mut(width.max(1)).zip(sources) {
            if let Some(target) = target.get_mut(start..start + part) {
                target.copy_from_slice(source);
            }
        }
        start += part;
    }
    charge.shrink_to(bytes);
    Ok((Tensor::f32(shape, values).map_err(OpError::from)?, charge))
}

/// Refuses integers that `f32` cannot represent, which would silently become others.
fn check_exact(tensor: &Tensor, name: &str) -> Result<(), OpError> {
    let found = match tensor.data() {
        Data::I64(values) => values.iter().copied().find(is_inexact),
        Data::I32(values) => values.iter().copied().map(i64::from).find(is_inexact),
        _ => None,
    };
    match found {
        Some(value) => Err(OpError::invalid(format!(
            "the tensor {name:?} contains {value}, but integers are exact only up to {LARGEST_EXACT}"
        ))),
        None => Ok(()),
    }
}

fn is_inexact(value: &i64) -> bool {
    value.unsigned_abs() > LARGEST_EXACT
}
