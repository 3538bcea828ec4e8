//! Convolutions whose output falls into parts that are made alike, each of the part of the input that it sees: the course of both passes.

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

/// How parts are seen and made; all of it is linear in the input and in the weight.
pub(super) trait Tiled: 'static {
    fn input(&self) -> &Value;

    fn weight(&self) -> &Value;

    /// The weight as parts are multiplied with it.
    fn kernels(&self, tape: &mut Tape) -> String;

    /// What parts see of the input.
    fn seen(&self, tape: &mut Tape) -> String;

    /// What parts make of it, as rows `[n·outputs, m]`.
    fn forward(&self, tape: &mut Tape, seen: &str, kernels: &str) -> String;

    /// The output's gradient, `[n·outputs, m]`, at what parts make.
    fn made(&self, tape: &mut Tape, rows: &str) -> String;

    /// Accumulates the weight's gradient.
    fn weight_gradient(&self, tape: &mut Tape, made: &str, seen: &str);

    /// Accumulates the input's gradient.
    fn input_gradient(&self, tape: &mut Tape, made: &str, kernels: &str);
}

/// Accumulates a bias' gradient of the output's.
pub(super) fn bias_gradient(tape: &mut Tape, bias: Option<Value>, gradient: &Value) {
    if let Some(bias) = bias.filter(Value::is_differentiable) {
        let rows = tape.rows(gradient);
        let sum = tape.sum_per_channel(&rows, gradient, Form::Rows);
        tape.accumulate_tensor(&bias, Form::Standard, sum);
    }
}

/// A Conv in parts. What they see is several times the input, so it is made again for the backward pass.
pub(super) fn conv(tape: &mut Tape, call: &Call<'_>, tiled: impl Tiled) -> Result<Value, TrainingError> {
    let bias = call.optional(2);
    let kernels = tiled.kernels(tape);
    let seen = tiled.seen(tape);
    let mut rows = tiled.forward(tape, &seen, &kernels);
    if let Some(bias) = &bias {
        let bias = tape.standard(bias);
        rows = tape.emit.add(&rows, &bias);
    }
    let output = call.output(Form::Rows, rows);
    tape.on_backward(&output, move |tape, gradient| {
        let rows = tape.rows(gradient);
        bias_gradient(tape, bias, gradient);
        let made = tiled.made(tape, &rows);
        if tiled.weight().is_differentiable() {
            let seen = tiled.seen(tape);
            tiled.weight_gradient(tape, &made, &seen);
        }
        if tiled.input().is_differentiable() {
            tiled.input_gradient(tape, &made, &kernels);
        }
    });
    Ok(output)
}
