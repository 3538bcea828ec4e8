//! Softmax inside of the suffix, for example in attention, and LogSoftmax.

use super::movement::reshaped;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Emitter;
use crate::tape::{Tape, TensorForm, Value};
use frostline_graph::build;

/// Emits the gradient of the input, given the output, the gradient of the output and the axis.
type Backward = fn(&mut Emitter, &str, &str, usize) -> String;

pub(super) fn softmax(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    along(tape, call, "Softmax", softmax_backward)
}

pub(super) fn log_softmax(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    along(tape, call, "LogSoftmax", |emit, y, dy, axis| {
        let shares = emit.node("Exp", &[y], vec![]);
        let total = emit.sum(dy, [axis], true);
        let spread = emit.mul(&shares, &total);
        emit.sub(dy, &spread)
    })
}

fn softmax_backward(emit: &mut Emitter, y: &str, dy: &str, axis: usize) -> String {
    let weighted = emit.mul(dy, y);
    let total = emit.sum(&weighted, [axis], true);
    let centered = emit.sub(dy, &total);
    emit.mul(&centered, y)
}

/// Returns the softmax of `input` along `axis`.
pub(super) fn shares(tape: &mut Tape, input: Value, axis: usize) -> Value {
    over_axis(tape, input, "Softmax", axis, softmax_backward)
}

/// Before operator set 13, these operators run over all axes from `axis` to the last.
fn along(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    operator: &str,
    backward: Backward,
) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let since_13 = call.opset() >= 13;
    let axis = call.axis(call.int("axis", if since_13 { -1 } else { 1 }), input.rank())?;
    if since_13 || axis + 1 == input.rank() {
        return Ok(over_axis(tape, input, operator, axis, backward));
    }
    let (rows, row) = input.shape().split_at_checked(axis).unwrap_or_default();
    let matrix = [rows.iter().product(), row.iter().product()];
    let flat = reshaped(tape, &input, &matrix);
    let shares = over_axis(tape, flat, operator, 1, backward);
    Ok(reshaped(tape, &shares, input.shape()))
}

fn over_axis(tape: &mut Tape, input: Value, operator: &str, axis: usize, backward: Backward) -> Value {
    let x = tape.standard(&input);
    let attributes = vec![build::int("axis", axis as i64)];
    let y = tape.emit.node(operator, &[&x], attributes);
    let output = Value::computed(input.shape(), y.clone(), &[&input]);
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        backward(&mut tape.emit, &y, dy, axis)
    });
    output
}
