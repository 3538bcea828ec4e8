//! Reductions over axes, and GlobalAveragePool.

use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Emitter;
use crate::tape::{Tape, TensorForm, Value};

pub(super) fn global_average_pool(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let axes = (2..input.rank()).collect();
    Ok(mean(tape, call, input, axes))
}

pub(super) fn reduce_mean(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    match axes(call, &input)? {
        Some(axes) => Ok(mean(tape, call, input, axes)),
        None => Ok(input),
    }
}

/// Returns the axes of a reduction in ascending order, or `None` if the node reduces nothing and returns the
/// input.
fn axes(call: &NodeCall<'_>, input: &Value) -> Result<Option<Vec<usize>>, TrainingError> {
    let named = call.axes(1, input.rank())?.filter(|axes| !axes.is_empty());
    if named.is_none() && call.int("noop_with_empty_axes", 0) != 0 {
        return Ok(None);
    }
    let mut axes = named.unwrap_or_else(|| (0..input.rank()).collect());
    axes.sort_unstable();
    Ok(Some(axes))
}

/// Returns `shape` with the length 1 for `axes`.
fn kept_dims(shape: &[usize], axes: &[usize]) -> Vec<usize> {
    let lengths = shape.iter().enumerate();
    lengths
        .map(|(axis, length)| if axes.contains(&axis) { 1 } else { *length })
        .collect()
}

/// Tensors available to a backward pass. The reduced axes of `y` and `dy` have length 1.
pub(crate) struct Reduced<'a> {
    x: &'a str,
    y: &'a str,
    dy: &'a str,
    axes: &'a [usize],
}

/// Emits a tensor that broadcasts to the gradient of the input.
pub(crate) type Backward = fn(&mut Emitter, &Reduced<'_>) -> String;

/// Emits the reduction of the node in the forward pass, and `backward` for the gradient.
pub(super) fn reduce(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    backward: Backward,
) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    Ok(match axes(call, &input)? {
        Some(axes) => reduced(tape, call, input, axes, backward),
        None => input,
    })
}

fn reduced(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    input: Value,
    axes: Vec<usize>,
    backward: impl FnOnce(&mut Emitter, &Reduced<'_>) -> String + 'static,
) -> Value {
    let operator = match call.node.op_type.as_str() {
        "GlobalAveragePool" => "ReduceMean",
        operator => operator,
    };
    let x = tape.standard(&input);
    let y = tape.emit.reduce(operator, &x, axes.iter().copied(), true);
    let result = tape.emit.reshape(&y, &call.output_shape);
    let output = call.output(TensorForm::Standard, result);
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        let dy = tape.emit.reshape(dy, &kept_dims(&dims, &axes));
        let tensors = Reduced {
            x: &x,
            y: &y,
            dy: &dy,
            axes: &axes,
        };
        let slope = backward(&mut tape.emit, &tensors);
        tape.emit.expand(&slope, &dims)
    });
    output
}

pub(super) fn reduce_sum(_: &mut Emitter, at: &Reduced<'_>) -> String {
    at.dy.to_owned()
}

/// Sums `input` over `axes` and removes the axes.
pub(super) fn total(tape: &mut Tape, input: Value, axes: Vec<usize>) -> Value {
    if axes.is_empty() {
        return input;
    }
    let dims = input.shape().to_vec();
    let lengths = dims.iter().enumerate();
    let left: Vec<usize> = lengths
        .filter(|(axis, _)| !axes.contains(axis))
        .map(|(_, length)| *length)
        .collect();
    let x = tape.standard(&input);
    let sum = tape.emit.sum(&x, axes.iter().copied(), false);
    let output = Value::computed(&left, sum, &[&input]);
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        let dy = tape.emit.reshape(dy, &kept_dims(&dims, &axes));
        tape.emit.expand(&dy, &dims)
    });
    output
}

/// Emits ReduceMax or ReduceMin. Like in `torch.amax`, equal elements share the gradient.
pub(super) fn reduce_extreme(emit: &mut Emitter, at: &Reduced<'_>) -> String {
    let chosen = emit.node("Equal", &[at.x, at.y], vec![]);
    let chosen = emit.cast_float(&chosen);
    let count = emit.sum(&chosen, at.axes.iter().copied(), true);
    let share = emit.div(at.dy, &count);
    emit.mul(&chosen, &share)
}

pub(super) fn reduce_l1(emit: &mut Emitter, at: &Reduced<'_>) -> String {
    let sign = emit.node("Sign", &[at.x], vec![]);
    emit.mul(&sign, at.dy)
}

/// Like in `torch.norm`, rows of zeros have the gradient zero.
pub(super) fn reduce_l2(emit: &mut Emitter, at: &Reduced<'_>) -> String {
    let least = emit.scalar(f32::MIN_POSITIVE.into());
    let length = emit.node("Max", &[at.y, &least], vec![]);
    let share = emit.div(at.dy, &length);
    emit.mul(at.x, &share)
}

pub(super) fn reduce_sum_square(emit: &mut Emitter, at: &Reduced<'_>) -> String {
    let twice = emit.scale(at.dy, 2.0);
    emit.mul(at.x, &twice)
}

pub(super) fn reduce_log_sum_exp(emit: &mut Emitter, at: &Reduced<'_>) -> String {
    let below = emit.sub(at.x, at.y);
    let shares = emit.node("Exp", &[&below], vec![]);
    emit.mul(&shares, at.dy)
}

fn mean(tape: &mut Tape, call: &NodeCall<'_>, input: Value, axes: Vec<usize>) -> Value {
    let pools = input.rank() > 2 && axes.iter().copied().eq(2..input.rank());
    if pools && tape.preferred_form(&[&input]) == TensorForm::Rows {
        return mean_of_rows(tape, call, input);
    }
    let kept: usize = kept_dims(input.shape(), &axes).iter().product();
    let count = input.elements() / kept.max(1);
    reduced(tape, call, input, axes, move |emit, at| {
        emit.scale(at.dy, 1.0 / count as f64)
    })
}

/// Emits the mean over all positions in the rows form.
fn mean_of_rows(tape: &mut Tape, call: &NodeCall<'_>, input: Value) -> Value {
    let batch = input.batch();
    let positions = input.positions();
    let channels = input.channels();
    let rows = tape.rows(&input);
    let images = tape.emit.reshape(&rows, &[batch, positions, channels]);
    let averaged = tape.emit.mean(&images, [1], false);
    let result = tape.emit.reshape(&averaged, &call.output_shape);
    let output = call.output(TensorForm::Standard, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        let dy = tape.emit.reshape(&dy, &[batch, 1, channels]);
        let share = tape.emit.scale(&dy, 1.0 / positions as f64);
        let spread = tape.emit.expand(&share, &[batch, positions, channels]);
        let dx = tape.emit.reshape(&spread, &[batch * positions, channels]);
        tape.accumulate_tensor(&input, TensorForm::Rows, dx);
    });
    output
}
