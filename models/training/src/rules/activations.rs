//! Smooth and hard activations other than ReLU, with the slopes of PyTorch at kinks.

use super::arithmetic::{accumulate, common_form, operand};
use super::elementwise::{Tensors, unary};
use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Emitter;
use crate::tape::{Tape, Value};
use frostline_graph::build;

/// Selects `positive` where `tensor` is above 0, and `other` elsewhere.
fn where_positive(emit: &mut Emitter, tensor: &str, positive: &str, other: &str) -> String {
    let zero = emit.scalar(0.0);
    let above = emit.node("Greater", &[tensor, &zero], vec![]);
    emit.node("Where", &[&above, positive, other], vec![])
}

/// Gradient of `max(0, min(1, alpha·x + beta))`. The slope is 0 at both bounds.
pub(super) fn hard_sigmoid(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let half = emit.scalar(0.5);
    let centered = emit.sub(at.y, &half);
    let distance = emit.node("Abs", &[&centered], vec![]);
    let between = emit.node("Less", &[&distance, &half], vec![]);
    let between = emit.cast_float(&between);
    let slope = emit.scale(at.dy, at.float("alpha", 0.2));
    emit.mul(&slope, &between)
}

/// Emits `x · h` with `h = hard_sigmoid(x)` and `alpha = 1/6`. The slope is `h`, plus `x/6 = h - 1/2` between
/// -3 and 3.
pub(super) fn hard_swish(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    unary(
        tape,
        call,
        |emit, x| {
            let gate = hard_gate(emit, x);
            emit.mul(x, &gate)
        },
        |emit, at| {
            let three = emit.scalar(3.0);
            let half = emit.scalar(0.5);
            let distance = emit.node("Abs", &[at.x], vec![]);
            let between = emit.node("Less", &[&distance, &three], vec![]);
            let between = emit.cast_float(&between);
            let gate = hard_gate(emit, at.x);
            let more = emit.sub(&gate, &half);
            let more = emit.mul(&more, &between);
            let slope = emit.add(&gate, &more);
            emit.mul(at.dy, &slope)
        },
    )
}

fn hard_gate(emit: &mut Emitter, x: &str) -> String {
    let settings = vec![build::float("alpha", 1.0 / 6.0), build::float("beta", 0.5)];
    emit.node("HardSigmoid", &[x], settings)
}

/// Emits `x · sigmoid(alpha·x)`, the SiLU of PyTorch. The slope is `s + alpha·y·(1 - s)`.
pub(super) fn swish(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let alpha = call.float("alpha", 1.0);
    unary(
        tape,
        call,
        move |emit, x| {
            let gate = gate(emit, x, alpha);
            emit.mul(x, &gate)
        },
        move |emit, at| {
            let gate = gate(emit, at.x, alpha);
            let one = emit.scalar(1.0);
            let rest = emit.sub(&one, &gate);
            let bent = emit.mul(at.y, &rest);
            let bent = emit.scale(&bent, alpha);
            let slope = emit.add(&gate, &bent);
            emit.mul(at.dy, &slope)
        },
    )
}

fn gate(emit: &mut Emitter, x: &str, alpha: f64) -> String {
    let scaled = emit.scale(x, alpha);
    emit.node("Sigmoid", &[&scaled], vec![])
}

/// Emits `x · t` with `t = tanh(softplus(x))`. The slope is `t + x·(1 - t²)·sigmoid(x)`.
pub(super) fn mish(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    unary(
        tape,
        call,
        |emit, x| {
            let t = tanh_of_softplus(emit, x);
            emit.mul(x, &t)
        },
        |emit, at| {
            let t = tanh_of_softplus(emit, at.x);
            let square = emit.mul(&t, &t);
            let one = emit.scalar(1.0);
            let rest = emit.sub(&one, &square);
            let sigmoid = emit.node("Sigmoid", &[at.x], vec![]);
            let along = emit.mul(at.x, &sigmoid);
            let bent = emit.mul(&along, &rest);
            let slope = emit.add(&t, &bent);
            emit.mul(at.dy, &slope)
        },
    )
}

fn tanh_of_softplus(emit: &mut Emitter, x: &str) -> String {
    let soft = emit.node("Softplus", &[x], vec![]);
    emit.node("Tanh", &[&soft], vec![])
}

/// Gradient of `alpha·(exp(x) - 1)` below 0.
pub(super) fn elu(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    exponential(emit, at, [1.0, 1.0, at.float("alpha", 1.0)])
}

/// Emits `alpha·(exp(x / alpha) - 1)` below 0, as an ELU between two scalings.
pub(super) fn celu(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let alpha = call.float("alpha", 1.0);
    unary(
        tape,
        call,
        move |emit, x| {
            let scaled = emit.scale(x, 1.0 / alpha);
            let bent = emit.node("Elu", &[&scaled], vec![]);
            emit.scale(&bent, alpha)
        },
        move |emit, at| exponential(emit, at, [1.0, 1.0 / alpha, 1.0]),
    )
}

/// Gradient of `gamma·alpha·(exp(x) - 1)` below 0 and `gamma·x` above.
pub(super) fn selu(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let alpha = at.float("alpha", 1.673_263_2);
    let gamma = at.float("gamma", 1.050_701);
    exponential(emit, at, [gamma, 1.0, gamma * alpha])
}

/// Emits the gradient of a function that is exponential below 0, with the slope `factor·y + offset` below 0 and
/// `above` above.
fn exponential(emit: &mut Emitter, at: &Tensors<'_>, [above, factor, offset]: [f64; 3]) -> String {
    let below = emit.scale(at.y, factor);
    let offset = emit.scalar(offset);
    let below = emit.add(&below, &offset);
    let above = emit.scalar(above);
    let slope = where_positive(emit, at.x, &above, &below);
    emit.mul(at.dy, &slope)
}

/// Gradient of `ln(1 + exp(x))`.
pub(super) fn softplus(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let slope = emit.node("Sigmoid", &[at.x], vec![]);
    emit.mul(at.dy, &slope)
}

/// Gradient of `x / (1 + |x|)`. The slope is `(1 - |y|)²`.
pub(super) fn softsign(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let distance = emit.node("Abs", &[at.y], vec![]);
    let one = emit.scalar(1.0);
    let rest = emit.sub(&one, &distance);
    let slope = emit.mul(&rest, &rest);
    emit.mul(at.dy, &slope)
}

/// Applies a trained slope below 0, either one for all channels or one per channel.
pub(super) fn prelu(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let slope = call.value(1)?;
    let full = call.output_shape.clone();
    let form = common_form(tape, &[&input, &slope], &full);
    let x = tape.tensor(&input, form);
    let s = operand(tape, &slope, &full, form);
    let scaled = tape.emit.mul(&x, &s);
    let y = where_positive(&mut tape.emit, &x, &x, &scaled);
    let output = call.output(form, y);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, form);
        if input.is_differentiable() {
            let below = tape.emit.mul(&dy, &s);
            let dx = where_positive(&mut tape.emit, &x, &dy, &below);
            tape.accumulate_tensor(&input, form, dx);
        }
        if slope.is_differentiable() {
            let zero = tape.emit.scalar(0.0);
            let below = tape.emit.node("Min", &[&x, &zero], vec![]);
            let product = tape.emit.mul(&dy, &below);
            accumulate(tape, &slope, product, &full, form);
        }
    });
    Ok(output)
}
