//! Convolutions whose output falls into parts that are made alike, each of the part of the input that it sees: the course of both passes.

use super::parts::{join, parts, split};
use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

/// How parts are seen and made; all of it is linear in the input and in the weight.
pub(super) trait Tiled: 'static {
    /// How the weight's gradient lies.
    const GRADIENT: Form;

    fn input(&self) -> &Value;

    fn weight(&self) -> &Value;

    /// Positions of the output.
    fn outputs(&self) -> usize;

    /// The weight as what parts see is multiplied with it.
    fn forward_kernels(&self, tape: &mut Tape) -> String;

    /// The weight as what parts make is multiplied with it.
    fn backward_kernels(&self, tape: &mut Tape) -> String;

    /// What parts see of the input.
    fn seen(&self, tape: &mut Tape) -> String;

    /// What parts make of it, as rows `[n·outputs, m]`.
    fn forward(&self, tape: &mut Tape, seen: &str, kernels: &str) -> String;

    /// The output's gradient, `[n·outputs, m]`, at what parts make.
    fn made(&self, tape: &mut Tape, rows: &str) -> String;

    /// The weight's gradient, in [`Self::GRADIENT`].
    fn weight_gradient(&self, tape: &mut Tape, made: &str, seen: &str) -> String;

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
    // Written before what is seen they run after it: the layers before have run then, which would otherwise run beside them.
    let kernels = tiled.first().map(|tiled| tiled.forward_kernels(tape));
    let kernels = kernels.unwrap_or_default();
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

/// Accumulates the weight's gradient by the output's, and returns the input's where one is wanted. One part runs after another, and the input's
/// gradient before the weight's, so that what one takes is gone when the next begins; what parts make is made again for that.
fn backward<T: Tiled>(tape: &mut Tape, tiled: &[T], images: &[usize], rows: &str) -> Option<String> {
    let first = tiled.first()?;
    let (outputs, filters) = (first.outputs(), first.weight().batch());
    let parts = split(tape, rows, images, outputs, filters);
    let parts = || tiled.iter().zip(&parts).zip(images);
    let dims = |images: &usize| [images * outputs, filters];
    let gradient = first.input().is_differentiable().then(|| {
        let kernels = first.backward_kernels(tape);
        let gradient = |((part, rows), images): ((&T, &String), &usize)| {
            let rows = tape.emit.reshape(rows, &dims(images));
            let made = part.made(tape, &rows);
            part.input_gradient(tape, &made, &kernels)
        };
        let gradients = parts().map(gradient).collect();
        join(tape, gradients)
    });
    if first.weight().is_differentiable() {
        let mut before = gradient.clone();
        for ((part, rows), images) in parts() {
            let seen = part.seen(tape);
            let rows = match &before {
                Some(before) => tape.emit.reshape_after(rows, &dims(images), before),
                None => tape.emit.reshape(rows, &dims(images)),
            };
            let made = part.made(tape, &rows);
            let gradient = part.weight_gradient(tape, &made, &seen);
            tape.accumulate_tensor(part.weight(), T::GRADIENT, gradient);
            let sum = tape.gradient(part.weight());
            before = sum.map(|sum| tape.tensor(&sum, T::GRADIENT));
        }
    }
    gradient
}
