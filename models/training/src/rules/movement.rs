//! Operators that only move elements.

use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

/// Identity, Dropout, which does nothing during inference, and casts between floating-point types, since all
/// of them have the same type in the step.
pub(super) fn keep(_: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    call.value(0)
}

/// Reshape, Flatten, Squeeze and Unsqueeze. All of them are a reshape to a known shape.
pub(super) fn reshape(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    Ok(reshaped(tape, &call.value(0)?, &call.output_shape))
}

pub(super) fn reshaped(tape: &mut Tape, input: &Value, shape: &[usize]) -> Value {
    if input.shape() == shape {
        return input.clone();
    }
    let standard = tape.standard(input);
    let result = tape.emit.reshape(&standard, shape);
    let output = Value::computed(shape, result, &[input]);
    let dims = input.shape().to_vec();
    tape.on_backward_to(input.clone(), &output, TensorForm::Standard, move |tape, dy| {
        tape.emit.reshape(dy, &dims)
    });
    output
}

pub(super) fn transpose(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let rank = input.rank();
    let permutation = match call.node.ints("perm") {
        Some(axes) => axes
            .iter()
            .map(|axis| call.axis(*axis, rank))
            .collect::<Result<Vec<usize>, _>>()?,
        None => (0..rank).rev().collect(),
    };
    Ok(transposed(tape, &input, permutation))
}

pub(super) fn transposed(tape: &mut Tape, input: &Value, permutation: Vec<usize>) -> Value {
    if permutation.iter().copied().eq(0..input.rank()) {
        return input.clone();
    }
    let standard = tape.standard(input);
    let result = tape.emit.transpose(&standard, permutation.iter().copied());
    let axes = permutation.iter();
    let shape: Vec<usize> = axes
        .filter_map(|axis| input.shape().get(*axis).copied())
        .collect();
    let output = Value::computed(&shape, result, &[input]);
    tape.on_backward_to(input.clone(), &output, TensorForm::Standard, move |tape, dy| {
        let inverse =
            (0..permutation.len()).filter_map(|axis| permutation.iter().position(|from| *from == axis));
        tape.emit.transpose(dy, inverse)
    });
    output
}

pub(super) fn concat(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let inputs = (0..call.node.input.len())
        .map(|slot| call.value(slot))
        .collect::<Result<Vec<Value>, _>>()?;
    let rank = call.output_shape.len();
    let axis = call.axis(call.int("axis", 1), rank)?;
    let form = if axis == 1 && rank > 2 {
        tape.preferred_form(&inputs.iter().collect::<Vec<_>>())
    } else {
        TensorForm::Standard
    };
    let tensors: Vec<String> = inputs.iter().map(|input| tape.tensor(input, form)).collect();
    let result = tape.emit.concat(&tensors, axis as i64);
    let output = call.output(form, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, form);
        let lengths: Vec<usize> = inputs
            .iter()
            .filter_map(|input| input.shape().get(axis).copied())
            .collect();
        let parts = tape.emit.split(&dy, &lengths, axis as i64);
        for (input, part) in inputs.iter().zip(parts) {
            tape.accumulate_tensor(input, form, part);
        }
    });
    Ok(output)
}

/// Exchanges blocks of channels with blocks of positions.
pub(super) fn depth_to_space(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let (input, [n, c, h, w], block) = blocked(call)?;
    let depth = c / (block * block);
    Ok(if call.node.text("mode") == Some("CRD") {
        let apart = [n, depth, block, block, h, w];
        exchanged(tape, call, &input, apart, [0, 1, 4, 2, 5, 3])
    } else {
        let apart = [n, block, block, depth, h, w];
        exchanged(tape, call, &input, apart, [0, 3, 4, 1, 5, 2])
    })
}

pub(super) fn space_to_depth(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let (input, [n, c, h, w], block) = blocked(call)?;
    let apart = [n, c, h / block, block, w / block, block];
    Ok(exchanged(tape, call, &input, apart, [0, 3, 5, 1, 2, 4]))
}

/// Returns the input, its dimensions and the side length of the blocks.
fn blocked(call: &NodeCall<'_>) -> Result<(Value, [usize; 4], usize), TrainingError> {
    let input = call.value(0)?;
    let size = usize::try_from(call.int("blocksize", 0)).ok();
    let size = size
        .filter(|size| *size > 0)
        .ok_or_else(|| call.unsupported("the attribute blocksize must be positive"))?;
    let Ok(dims) = input.shape().try_into() else {
        return Err(call.unsupported("the input must have four axes"));
    };
    Ok((input, dims, size))
}

/// Permutes the axes of the input with the shape `apart`.
fn exchanged(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    input: &Value,
    apart: [usize; 6],
    order: [usize; 6],
) -> Value {
    let parts = reshaped(tape, input, &apart);
    let parts = transposed(tape, &parts, order.into());
    reshaped(tape, &parts, &call.output_shape)
}
