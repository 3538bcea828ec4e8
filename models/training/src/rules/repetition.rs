//! Rules of Expand and Tile.

use super::arithmetic::reduce_to;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

pub(super) fn expand(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    if input.shape() == call.output_shape {
        return Ok(input);
    }
    let x = tape.standard(&input);
    let y = tape.emit.expand(&x, &call.output_shape);
    let output = call.output(TensorForm::Standard, y);
    let full = call.output_shape.clone();
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        reduce_to(tape, dy, &full, &dims)
    });
    Ok(output)
}

pub(super) fn tile(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let x = tape.standard(&input);
    let pairs = input.shape().iter().zip(&call.output_shape);
    let repeats: Vec<usize> = pairs.map(|(from, to)| to / (*from).max(1)).collect();
    let times = tape.emit.ints(repeats.iter().map(|times| *times as i64));
    let y = tape.emit.node("Tile", &[&x, &times], vec![]);
    let output = call.output(TensorForm::Standard, y);
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        // Split every axis into the repetitions and the repeated elements.
        let split: Vec<usize> = repeats
            .iter()
            .zip(&dims)
            .flat_map(|(times, dim)| [*times, *dim])
            .collect();
        let dy = tape.emit.reshape(dy, &split);
        let sum = tape.emit.sum(&dy, (0..dims.len()).map(|axis| 2 * axis), false);
        tape.emit.reshape(&sum, &dims)
    });
    Ok(output)
}
