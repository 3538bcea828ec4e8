//! ReduceMean and GlobalAveragePool.

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

pub(super) fn global_average_pool(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let axes = (2..input.rank()).collect();
    Ok(mean(tape, call, input, axes))
}

pub(super) fn reduce_mean(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let axes = match call.axes(1, input.rank())?.filter(|axes| !axes.is_empty()) {
        Some(axes) => axes,
        None if call.int("noop_with_empty_axes", 0) != 0 => return Ok(input),
        None => (0..input.rank()).collect(),
    };
    Ok(mean(tape, call, input, axes))
}

fn mean(tape: &mut Tape, call: &Call<'_>, input: Value, mut axes: Vec<usize>) -> Value {
    axes.sort_unstable();
    let pools = input.rank() > 2 && axes.iter().copied().eq(2..input.rank());
    if pools && tape.preferred_form(&[&input]) == Form::Rows {
        return mean_of_rows(tape, call, input);
    }
    let kept: Vec<usize> = input
        .shape()
        .iter()
        .enumerate()
        .map(|(axis, length)| if axes.contains(&axis) { 1 } else { *length })
        .collect();
    let count = input.elements() / kept.iter().product::<usize>().max(1);
    let x = tape.standard(&input);
    let averaged = tape.emit.mean(&x, axes, true);
    let result = tape.emit.reshape(&averaged, call.output_shape());
    let output = call.output(Form::Standard, result);
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, Form::Standard, move |tape, dy| {
        let dy = tape.emit.reshape(dy, &kept);
        let share = tape.emit.scale(&dy, 1.0 / count as f64);
        tape.emit.expand(&share, &dims)
    });
    output
}

/// The mean over all positions of a value in rows.
fn mean_of_rows(tape: &mut Tape, call: &Call<'_>, input: Value) -> Value {
    let (batch, positions, channels) = (input.batch(), input.positions(), input.channels());
    let rows = tape.rows(&input);
    let images = tape.emit.reshape(&rows, &[batch, positions, channels]);
    let averaged = tape.emit.mean(&images, [1], false);
    let result = tape.emit.reshape(&averaged, call.output_shape());
    let output = call.output(Form::Standard, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        let dy = tape.emit.reshape(&dy, &[batch, 1, channels]);
        let share = tape.emit.scale(&dy, 1.0 / positions as f64);
        let spread = tape.emit.expand(&share, &[batch, positions, channels]);
        let dx = tape.emit.reshape(&spread, &[batch * positions, channels]);
        tape.accumulate_tensor(&input, Form::Rows, dx);
    });
    output
}
