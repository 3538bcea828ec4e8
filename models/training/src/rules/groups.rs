//! InstanceNormalization and GroupNormalization, which normalize every sample by channel or by group.

use super::standard::Standardized;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

pub(super) fn instance_normalization(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let channels = call.value(0)?.channels();
    normalize(tape, call, channels)
}

pub(super) fn group_normalization(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let channels = call.value(0)?.channels();
    let groups = usize::try_from(call.int("num_groups", 0)).unwrap_or(0);
    if groups == 0 || channels % groups != 0 {
        return Err(call.unsupported(format!(
            "{channels} channels cannot be divided into {groups} groups"
        )));
    }
    normalize(tape, call, groups)
}

/// Normalizes by group. Scale and bias have an element per channel or, before operator set 21, per group.
fn normalize(tape: &mut Tape, call: &NodeCall<'_>, groups: usize) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let scale = call.value(1)?;
    let bias = call.value(2)?;
    let batch = input.batch();
    let row = input.elements() / batch.max(1);
    let lines = scale.elements().max(1);
    if bias.elements() != lines || row % lines != 0 {
        return Err(call.unsupported("scale and bias do not match the channels"));
    }
    let grouped = [batch, groups, row / groups.max(1)];
    let affine = [batch, lines, row / lines];

    let x = tape.standard(&input);
    let x = tape.emit.reshape(&x, &grouped);
    let standard = Standardized::new(&mut tape.emit, &x, &[2], call.float("epsilon", 1e-5));
    let hat = tape.emit.reshape(&standard.hat, &affine);
    let gamma = tape.standard(&scale);
    let beta = tape.standard(&bias);
    let gamma = tape.emit.reshape(&gamma, &[lines, 1]);
    let beta = tape.emit.reshape(&beta, &[lines, 1]);
    let scaled = tape.emit.mul(&hat, &gamma);
    let shifted = tape.emit.add(&scaled, &beta);
    let result = tape.emit.reshape(&shifted, input.shape());
    let output = call.output(TensorForm::Standard, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        let dy = tape.emit.reshape(&dy, &affine);
        if scale.is_differentiable() {
            let along = tape.emit.mul(&dy, &hat);
            let sum = tape.emit.sum(&along, [0, 2], false);
            tape.accumulate_tensor(&scale, TensorForm::Standard, sum);
        }
        if bias.is_differentiable() {
            let sum = tape.emit.sum(&dy, [0, 2], false);
            tape.accumulate_tensor(&bias, TensorForm::Standard, sum);
        }
        if input.is_differentiable() {
            let dhat = tape.emit.mul(&dy, &gamma);
            let dhat = tape.emit.reshape(&dhat, &grouped);
            let dx = standard.gradient(&mut tape.emit, &dhat);
            let dx = tape.emit.reshape(&dx, input.shape());
            tape.accumulate_tensor(&input, TensorForm::Standard, dx);
        }
    });
    Ok(output)
}
