//! Operators that move elements without changing them.

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

/// Identity, and Dropout, which is one where nothing is drawn.
pub(super) fn keep(_: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    call.value(0)
}

/// Only to the type that everything has.
pub(super) fn cast(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    if call.int("to", 0) == i64::from(tape.emit.float.data_type()) {
        call.value(0)
    } else {
        Err(call.no_rule())
    }
}

/// Reshape, Flatten, Squeeze and Unsqueeze: the shapes are known, so all are one reshape.
pub(super) fn reshape(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    if input.shape() == call.output_shape() {
        return Ok(input);
    }
    let standard = tape.standard(&input);
    let result = tape.emit.reshape(&standard, call.output_shape());
    let output = call.output(Form::Standard, result);
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, Form::Standard, move |tape, dy| {
        tape.emit.reshape(dy, &dims)
    });
    Ok(output)
}

pub(super) fn transpose(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let rank = input.rank();
    let permutation = match call.node.ints("perm") {
        Some(axes) => axes
            .iter()
            .map(|axis| call.axis(*axis, rank))
            .collect::<Result<Vec<usize>, _>>()?,
        None => (0..rank).rev().collect(),
    };
    let standard = tape.standard(&input);
    let result = tape.emit.transpose(&standard, permutation.iter().copied());
    let output = call.output(Form::Standard, result);
    tape.on_backward_to(input, &output, Form::Standard, move |tape, dy| {
        let inverse = (0..rank).filter_map(|axis| permutation.iter().position(|from| *from == axis));
        tape.emit.transpose(dy, inverse)
    });
    Ok(output)
}

pub(super) fn concat(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let inputs = (0..call.node.input.len())
        .map(|slot| call.value(slot))
        .collect::<Result<Vec<Value>, _>>()?;
    let rank = call.output_shape().len();
    let axis = call.axis(call.int("axis", 1), rank)?;
    let form = if axis == 1 && rank > 2 {
        tape.preferred_form(&inputs.iter().collect::<Vec<_>>())
    } else {
        Form::Standard
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
