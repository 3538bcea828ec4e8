//! Validates what a guest returns before the host uses it.

use crate::bindings;
use crate::call::{Call, Extracted, ModelView};
use crate::error::SandboxError;
use crate::imports::pixel_spec;
use crate::nn::code_from_guest;
use crate::text::{MESSAGE, one_line};
use frostline_tensor::{DType, OpError, PixelSpec, SampleFailure, Shape, Tensor};
use frostline_wire::{Activation, Description, Pixels, ServedCut};
use std::collections::HashSet;

/// The longest name or version, in bytes: they stand in tables and messages.
const NAME: usize = 64;
/// The most dimensions of an activation of the guest's own; ONNX models rarely pass six.
const RANK: usize = 8;

/// A description that names only cuts of `model`, each once. `recipe` is what the guest said of its pixels beside it.
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
        name: one_line(&answer.name, NAME),
        version: one_line(&answer.version, NAME),
        pixels,
        cuts,
        // Set from its imports.
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
            one_line(cut, NAME)
        ))
    };
    if dims.len() > RANK || dims.contains(&0) {
        return Err(wrong());
    }
    let shape: Vec<usize> = dims
        .iter()
        .map(|&dim| usize::try_from(dim))
        .collect::<Result<_, _>>()
        .map_err(|_| wrong())?;
    // What one tensor of the wire can count.
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
                one_line(&cut.name, MESSAGE)
            )));
        }
        if !seen.insert(&cut.name) {
            return Err(SandboxError::bad_answer(format!("duplicate cut {:?}", cut.name)));
        }
    }
    Ok(())
}

/// The error that the guest returned.
pub(crate) fn failure(failure: bindings::Failure) -> SandboxError {
    SandboxError::Failed(OpError::new(
        code_from_guest(failure.code),
        one_line(&failure.message, MESSAGE),
    ))
}

/// Activations where every one of `sample_count` samples has a row or a failure, of the shape the call promises.
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
        let error = OpError::new(code_from_guest(sample.code), one_line(&sample.message, MESSAGE));
        failures.push(SampleFailure { index, error });
    }
    Ok(failures)
}
