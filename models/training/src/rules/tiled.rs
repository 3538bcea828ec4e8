//! Convolutions whose output falls into parts that are made alike, each of the part of the input that it sees: the course of both passes.

use super::parts::{join, parts, split};
use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

/// How parts are seen and made; all of it is linear in the input and in the weight.
pub(super) trait Tiled: 'static {
    fn input(&self) -> &Value;

    fn weight(&self) -> &Value;

    /// Positions of the output.
    fn outputs(&self) -> usize;

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

    /// The input's gradient, `[n·positions, c]`.
    fn input_gradient(&self, tape: &mut Tape, made: &str, kernels: &str) -> String;
}

/// Accumulates a bias' gradient of the output's.
pub(super) fn bias_gradient(tape: &mut Tape, bias: Option<Value>, gradient: &Value) {
    if let Some(bias) = bias.filter(Value::is_differentiable) {
        let rows = tape.rows(gradient);
        let sum = tape.sum_per_channel(&rows, gradient, Form::Rows);
        tape.accumulate_tensor(&bias, Form::Standard, sum);
    }
}

/// A Conv in tiles, a part of the batch after another, each of at most [`UNROLLED_BYTES`](super::parts) where an image has
/// `image_bytes`: `make` takes the part's input. What tiles see, and the kernels that they are multiplied with, are several times the input
/// and the weight, so both are made again for the backward pass.
pub(super) fn conv<T: Tiled>(
    tape: &mut Tape,
    call: &Call<'_>,
    image_bytes: usize,
    make: impl Fn(Value) -> T,
) -> Result<Value, TrainingError> {
    let (input, bias) = (call.value(0)?, call.optional(2));
    let images = parts(input.batch(), image_bytes);
    let tiled: Vec<T> = inputs(tape, &input, &images).into_iter().map(make).collect();
    let kernels = tiled.first().map(|tiled| tiled.kernels(tape)).unwrap_or_default();
    let mut made = Vec::new();
    for part in &tiled {
        let seen = part.seen(tape);
        let mut rows = part.forward(tape, &seen, &kernels);
        if let Some(bias) = &bias {
            let bias = tape.standard(bias);
            rows = tape.emit.add(&rows, &bias);
        }
        made.push(rows);
    }
    let rows = join(tape, made);
    let output = call.output(Form::Rows, rows);
    tape.on_backward(&output, move |tape, gradient| {
        bias_gradient(tape, bias, gradient);
        let rows = tape.rows(gradient);
        let gradient = tape.loosely(|tape| backward(tape, &tiled, &images, &rows));
        if let Some(rows) = gradient {
            let dims = [input.batch() * input.positions(), input.channels()];
            let rows = tape.emit.reshape(&rows, &dims);
            tape.accumulate_tensor(&input, Form::Rows, rows);
        }
    });
    Ok(output)
}

/// The input's images as the input of each part.
fn inputs(tape: &mut Tape, input: &Value, images: &[usize]) -> Vec<Value> {
    if images.len() == 1 {
        return vec![input.clone()];
    }
    let rows = tape.rows(input);
    let (positions, channels) = (input.positions(), input.channels());
    let parts = split(tape, &rows, images, positions, channels).into_iter();
    let part = |(part, images): (String, &usize)| {
        let rows = tape.emit.reshape(&part, &[images * positions, channels]);
        let shape = [&[*images], input.shape().get(1..).unwrap_or_default()].concat();
        Value::new(&shape, Form::Rows, rows, input.is_differentiable())
    };
    parts.zip(images).map(part).collect()
}

/// Accumulates the weight's gradient, part by part, by the output's, and returns the input's where one is wanted.
fn backward<T: Tiled>(tape: &mut Tape, tiled: &[T], images: &[usize], rows: &str) -> Option<String> {
    let first = tiled.first()?;
    let filters = first.weight().batch();
    let outputs = first.outputs();
    let parts = split(tape, rows, images, outputs, filters);
    let wanted = first.input().is_differentiable();
    let kernels = wanted.then(|| first.kernels(tape));
    let mut gradients = Vec::new();
    for ((part, rows), images) in tiled.iter().zip(parts).zip(images) {
        let rows = tape.emit.reshape(&rows, &[images * outputs, filters]);
        let made = part.made(tape, &rows);
        if part.weight().is_differentiable() {
            let seen = part.seen(tape);
            part.weight_gradient(tape, &made, &seen);
            tape.gradient(part.weight());
        }
        if let Some(kernels) = &kernels {
            gradients.push(part.input_gradient(tape, &made, kernels));
        }
    }
    kernels.map(|_| join(tape, gradients))
}
