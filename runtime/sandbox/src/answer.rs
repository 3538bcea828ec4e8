//! Validates the answers of guests before the host uses them.

use crate::bindings;
use crate::call::{Call, Extracted, ModelView};
use crate::error::SandboxError;
use crate::imports::pixel_spec;
use crate::nn::code_from_guest;
use crate::text::{MAX_MESSAGE_BYTES, one_line};
use frostline_tensor::{DType, OpError, PixelSpec, SampleFailure, Shape, Tensor};
use frostline_wire::{Activation, Description, Pixels, ServedCut};
use std::collections::HashSet;

/// Maximum length of guest names and versions in bytes. Both appear in tables and messages.
const MAX_NAME_BYTES: usize = 64;
/// Maximum length in bytes of an unknown cut in a message, of which hosts send [`MAX_MESSAGE_BYTES`].
const MAX_CUT_BYTES: usize = 256;
/// Maximum number of dimensions of an activation. ONNX models rarely have more than six.
const MAX_RANK: usize = 8;

/// Validates a description: each cut belongs to `model` and appears once, and the pixel spec is valid.
/// `recipe` is the argument of the guest's last call of `describe-recipe`; it replaces the spec in the
/// answer.
pub(crate) fn description(
    answer: bindings::Description,
    recipe: Option<PixelSpec>,
    model: &ModelView,
) -> Result<Description, SandboxError> {
    let pixels = match answer.pixels {
        bindings::Pixels::Own => Pixels::Own,
        bindings::Pixels::Spec(spec) => {
            let spec = recipe.unwrap_or_else(|| pixel_spec(&spec));
            spec.check().map_err(SandboxError::bad_answer)?;
            Pixels::Spec(spec)
        }
    };
    let cuts = answer
        .cuts
        .into_iter()
        .map(served_cut)
        .collect::<Result<Vec<_>, _>>()?;
    check_cuts(&cuts, model)?;
    Ok(Description {
        name: one_line(&answer.name, MAX_NAME_BYTES),
        version: one_line(&answer.version, MAX_NAME_BYTES),
        pixels,
        cuts,
        // The caller derives this from the guest's imports.
        augments: false,
    })
}

fn served_cut(cut: bindings::ServedCut) -> Result<ServedCut, SandboxError> {
    let activation = match cut.activation {
        bindings::Activation::Faithful => Activation::Faithful,
        bindings::Activation::Own(dims) => Activation::Own(own_shape(&cut.name, &dims)?),
    };
    Ok(ServedCut {
        name: cut.name,
        activation,
    })
}

fn own_shape(cut: &str, dims: &[u32]) -> Result<Vec<usize>, SandboxError> {
    let wrong = || {
        SandboxError::bad_answer(format!(
            "invalid activation shape {dims:?} at {:?}",
            one_line(cut, MAX_NAME_BYTES)
        ))
    };
    if dims.len() > MAX_RANK || dims.contains(&0) {
        return Err(wrong());
    }
    let shape: Vec<usize> = dims
        .iter()
        .map(|&dim| usize::try_from(dim))
        .collect::<Result<_, _>>()
        .map_err(|_| wrong())?;
    // A tensor on the wire has up to `i32::MAX` elements per sample.
    let elements = Shape::new(shape.clone()).elements().map_err(|_| wrong())?;
    if i32::try_from(elements).is_err() {
        return Err(wrong());
    }
    Ok(shape)
}

fn check_cuts(cuts: &[ServedCut], model: &ModelView) -> Result<(), SandboxError> {
    let mut seen = HashSet::new();
    for cut in cuts {
        if model.cut(&cut.name).is_none() {
            return Err(SandboxError::bad_answer(format!(
                "{:?} is not a cut of the model",
                one_line(&cut.name, MAX_CUT_BYTES)
            )));
        }
        if !seen.insert(&cut.name) {
            return Err(SandboxError::bad_answer(format!("duplicate cut {:?}", cut.name)));
        }
    }
    Ok(())
}

/// Converts an error that the guest returned.
pub(crate) fn failure(failure: bindings::Failure) -> SandboxError {
    SandboxError::Failed(OpError::new(
        code_from_guest(failure.code),
        one_line(&failure.message, MAX_MESSAGE_BYTES),
    ))
}

/// Validates the result of an extraction. Each of the `sample_count` samples must have either a failure or an
/// activation of the shape expected by `call`.
pub(crate) fn extracted(
    activations: Tensor,
    failed: Vec<bindings::FailedSample>,
    sample_count: usize,
    call: &Call,
) -> Result<Extracted, SandboxError> {
    let failed = failures(failed, sample_count)?;
    let rows = activations.rows().unwrap_or(0);
    if rows + failed.len() != sample_count {
        return Err(SandboxError::bad_answer(format!(
            "{rows} rows and {} failed samples for {sample_count} samples",
            failed.len()
        )));
    }
    if activations.dtype() != DType::F32 || activations.shape() != &call.row.batched(rows) {
        return Err(SandboxError::bad_answer(format!(
            "the activations are {}, expected f32{2} per sample at the split {1:?}",
            activations.describe(),
            call.split,
            call.row
        )));
    }
    Ok(Extracted { activations, failed })
}

fn failures(
    failed: Vec<bindings::FailedSample>,
    sample_count: usize,
) -> Result<Vec<SampleFailure>, SandboxError> {
    let mut failures = Vec::new();
    let mut next = 0;
    for sample in failed {
        let index = usize::try_from(sample.index).unwrap_or(usize::MAX);
        if index >= sample_count || index < next {
            return Err(SandboxError::bad_answer(format!(
                "failed sample {index} of {sample_count}: indices must be ascending and below the number of samples"
            )));
        }
        next = index + 1;
        let error = OpError::new(
            code_from_guest(sample.code),
            one_line(&sample.message, MAX_MESSAGE_BYTES),
        );
        failures.push(SampleFailure { index, error });
    }
    Ok(failures)
}
