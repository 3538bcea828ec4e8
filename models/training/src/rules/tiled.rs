//! Schedule of both passes of convolutions that compute the output in equal tiles.

use super::parts::{join, parts, split};
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

/// Convolution of a part of the batch by `tiles`.
pub(super) struct BatchPart<T> {
    pub(super) input: Value,
    pub(super) weight: Value,
    pub(super) tiles: T,
}

impl<T> BatchPart<T> {
    pub(super) fn images(&self) -> usize {
        self.input.batch()
    }

    pub(super) fn filters(&self) -> usize {
        self.weight.batch()
    }

    pub(super) fn channels(&self) -> usize {
        self.input.channels()
    }
}

/// A convolution by tiles. All functions are linear in the input and in the weight.
pub(super) trait Tiled: 'static {
    /// Form of the weight's gradient.
    const GRADIENT: TensorForm;

    /// Returns the number of output positions per image.
    fn outputs(&self) -> usize;

    /// Returns the weight as the right operand of the forward product.
    fn forward_kernels(&self, tape: &mut Tape) -> String;

    /// Returns the weight as the right operand of the product for the gradient of the input.
    fn backward_kernels(&self, tape: &mut Tape) -> String;

    /// Returns the input of all tiles.
    fn input_tiles(&self, tape: &mut Tape) -> String;

    /// Returns the output as rows `[n·outputs, m]`.
    fn forward(&self, tape: &mut Tape, seen: &str, kernels: &str) -> String;

    /// Returns the gradient of the output by tile, from `[n·outputs, m]`.
    fn gradient_tiles(&self, tape: &mut Tape, rows: &str) -> String;

    /// Returns the gradient of the weight in the form [`Self::GRADIENT`].
    fn weight_gradient(&self, tape: &mut Tape, made: &str, seen: &str) -> String;

    /// Returns the gradient of the input, `[n·positions, c]`.
    fn input_gradient(&self, tape: &mut Tape, made: &str, kernels: &str) -> String;
}

/// Accumulates the gradient of the bias from the gradient of the output in `form`.
pub(super) fn bias_gradient(tape: &mut Tape, bias: Option<Value>, gradient: &Value, form: TensorForm) {
    if let Some(bias) = bias.filter(Value::is_differentiable) {
        let dy = tape.tensor(gradient, form);
        let sum = tape.sum_per_channel(&dy, gradient, form);
        tape.accumulate_tensor(&bias, TensorForm::Standard, sum);
    }
}

/// Emits a Conv by tiles for the parts of the batch in sequence. A part has up to
/// [`UNROLLED_BYTES`](super::parts), given `image_bytes` per image. The inputs of tiles and the kernels for them are
/// several times larger than input and weight, so the backward pass computes both again.
pub(super) fn conv<T: Clone>(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    image_bytes: usize,
    tiles: &T,
) -> Result<Value, TrainingError>
where
    BatchPart<T>: Tiled,
{
    let input = call.value(0)?;
    let weight = call.value(1)?;
    let bias = call.optional(2);
    let images = parts(input.batch(), image_bytes);
    let inputs = inputs(tape, &input, &images).into_iter();
    let tiled = inputs.map(|input| BatchPart {
        input,
        weight: weight.clone(),
        tiles: tiles.clone(),
    });
    let tiled: Vec<BatchPart<T>> = tiled.collect();
    // Emitted before `seen`, the kernels are computed after it and therefore after the preceding layers.
    // Otherwise the kernels would be in memory while those layers run.
    let kernels = tiled.first().map(|tiled| tiled.forward_kernels(tape));
    let kernels = kernels.unwrap_or_default();
    let mut made = Vec::new();
    for part in &tiled {
        let seen = part.input_tiles(tape);
        let mut rows = part.forward(tape, &seen, &kernels);
        if let Some(bias) = &bias {
            let bias = tape.standard(bias);
            rows = tape.emit.add(&rows, &bias);
        }
        made.push(rows);
    }
    let rows = join(tape, made);
    let output = call.output(TensorForm::Rows, rows);
    tape.on_backward(&output, move |tape, gradient| {
        bias_gradient(tape, bias, gradient, TensorForm::Rows);
        let rows = tape.rows(gradient);
        let gradient = tape.with_hidden_shapes(|tape| backward(tape, &tiled, &images, &rows));
        if let Some(rows) = gradient {
            let dims = [input.batch() * input.positions(), input.channels()];
            let rows = tape.emit.reshape(&rows, &dims);
            tape.accumulate_tensor(&input, TensorForm::Rows, rows);
        }
    });
    Ok(output)
}

/// Splits the images of the input into the parts of the batch.
fn inputs(tape: &mut Tape, input: &Value, images: &[usize]) -> Vec<Value> {
    if images.len() == 1 {
        return vec![input.clone()];
    }
    let rows = tape.rows(input);
    let positions = input.positions();
    let channels = input.channels();
    let parts = split(tape, &rows, images, positions, channels).into_iter();
    parts
        .zip(images)
        .map(|(part, images)| {
            let rows = tape.emit.reshape(&part, &[images * positions, channels]);
            let shape = [&[*images], input.shape().get(1..).unwrap_or_default()].concat();
            Value::new(&shape, TensorForm::Rows, rows, input.is_differentiable())
        })
        .collect()
}

/// Accumulates the gradient of the weight and returns the gradient of the input, if needed. Parts run in
/// sequence, and the gradient of the input runs before the gradient of the weight, to free memory before the
/// next computation. For this, the gradient of the output is split into tiles twice.
fn backward<T>(tape: &mut Tape, tiled: &[BatchPart<T>], images: &[usize], rows: &str) -> Option<String>
where
    BatchPart<T>: Tiled,
{
    let form = <BatchPart<T> as Tiled>::GRADIENT;
    let first = tiled.first()?;
    let outputs = first.outputs();
    let filters = first.filters();
    let parts = split(tape, rows, images, outputs, filters);
    let dims = images.iter().map(|images| [images * outputs, filters]);
    let parts = tiled.iter().zip(&parts).zip(dims);
    let gradient = first.input.is_differentiable().then(|| {
        let kernels = first.backward_kernels(tape);
        let gradients = parts
            .clone()
            .map(|((part, rows), dims)| {
                let rows = tape.emit.reshape(rows, &dims);
                let made = part.gradient_tiles(tape, &rows);
                part.input_gradient(tape, &made, &kernels)
            })
            .collect();
        join(tape, gradients)
    });
    if first.weight.is_differentiable() {
        let mut before = gradient.clone();
        for ((part, rows), dims) in parts {
            let seen = part.input_tiles(tape);
            let rows = match &before {
                Some(before) => tape.emit.reshape_after(rows, &dims, before),
                None => tape.emit.reshape(rows, &dims),
            };
            let made = part.gradient_tiles(tape, &rows);
            let gradient = part.weight_gradient(tape, &made, &seen);
            tape.accumulate_tensor(&part.weight, form, gradient);
            let sum = tape.gradient(&part.weight);
            before = sum.map(|sum| tape.tensor(&sum, form));
        }
    }
    gradient
}
