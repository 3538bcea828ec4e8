//! Conv by matrix products of gathered rows.
//!
//! The input is stored as rows `[n, positions, c]`. A `Gather` along the positions collects the inputs of all
//! kernel taps at all output positions. Read as `[n·outputs, taps·c]`, a Gemm with the weight `[m, taps·c]`
//! is the convolution, and a Gemm of the output's gradient with the same matrix is the gradient of the
//! weight. The gradient of the input is computed in the opposite direction: the gradient of the output is
//! gathered as `[n·positions, taps·m]`, followed by a Gemm with the weight as `[taps·m, c]`. With a stride,
//! positions with the same taps form a separate product, so no time is spent on zeros.

use super::parts::{gather_padded, join, parts, split};
use super::tiled::bias_gradient;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Emitter;
use crate::tape::{Tape, TensorForm, Value};
use crate::windows::{WindowPhase, Windows};
use frostline_graph::build;

#[derive(Clone)]
struct Convolution {
    input: Value,
    weight: Value,
    windows: Windows,
    /// Numbers of images in the parts of the batch.
    parts: Vec<usize>,
}

pub(super) fn conv(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let weight = call.value(1)?;
    let bias = call.optional(2);
    let windows = Windows::new(call, input.spatial(), weight.spatial())?;
    let groups = call.int("group", 1);
    if groups > 1 {
        return super::grouped::conv(tape, call, windows, groups.unsigned_abs() as usize);
    }
    let name = call.node.input_name(1).unwrap_or_default();
    let chosen = call.source.winograd.contains(name);
    if let Some(tiles) = windows.tiles().filter(|_| chosen) {
        return super::winograd::conv(tape, call, tiles);
    }
    let mut conv = Convolution {
        input,
        weight,
        windows,
        parts: Vec::new(),
    };
    conv.parts = parts(conv.input.batch(), conv.unrolled_bytes());
    let rows = conv.forward(tape, bias.as_ref());
    let output = call.output(TensorForm::Rows, rows);
    tape.on_backward(&output, move |tape, gradient| {
        let rows = tape.rows(gradient);
        bias_gradient(tape, bias, gradient, TensorForm::Rows);
        // Delay the second gradient until the memory of the first is free.
        let rows = match conv.input.is_differentiable() {
            true => {
                let gradient = conv.input_gradient(tape, &rows);
                let dims = [conv.input.batch() * conv.windows.outputs(), conv.filters()];
                tape.emit.reshape_after(&rows, &dims, &gradient)
            }
            false => rows,
        };
        if conv.weight.is_differentiable() {
            tape.with_hidden_shapes(|tape| conv.weight_gradient(tape, &rows));
        }
    });
    Ok(output)
}

impl Convolution {
    fn filters(&self) -> usize {
        self.weight.batch()
    }

    fn channels(&self) -> usize {
        self.input.channels()
    }

    fn taps(&self) -> usize {
        self.windows.taps()
    }

    /// Returns the weight as `[m, taps·c]`.
    fn matrix(&self, tape: &mut Tape) -> String {
        let rows = tape.rows(&self.weight);
        tape.emit.reshape(&rows, &self.matrix_dims())
    }

    fn matrix_dims(&self) -> [usize; 2] {
        [self.filters(), self.taps() * self.channels()]
    }

    /// Returns the output as `[n·outputs, m]`.
    fn forward(&self, tape: &mut Tape, bias: Option<&Value>) -> String {
        let matrix = self.matrix(tape);
        let bias = bias.map(|bias| tape.standard(bias));
        let mut products = Vec::new();
        for unrolled in &self.unroll(tape) {
            let inputs: Vec<&str> = [unrolled.as_str(), &matrix]
                .into_iter()
                .chain(bias.as_deref())
                .collect();
            products.push(tape.emit.node("Gemm", &inputs, vec![build::int("transB", 1)]));
        }
        join(tape, products)
    }

    /// Returns the unrolled size of an image.
    fn unrolled_bytes(&self) -> usize {
        self.windows.outputs() * self.taps() * self.channels() * size_of::<f32>()
    }

    /// Returns the inputs of all taps at all output positions, `[n·outputs, taps·c]`, for the parts of the
    /// batch.
    fn unroll(&self, tape: &mut Tape) -> Vec<String> {
        let windows = &self.windows;
        let channels = self.channels();
        let rows = tape.rows(&self.input);
        let parts = split(tape, &rows, &self.parts, windows.inputs(), channels);
        let pattern = windows.pattern();
        parts
            .into_iter()
            .zip(&self.parts)
            .map(|(part, images)| {
                if windows.is_identity() {
                    return tape.emit.reshape(&part, &[images * windows.outputs(), channels]);
                }
                let gathered = gather_padded(tape, &part, &pattern, windows.inputs());
                let dims = [images * windows.outputs(), windows.taps() * channels];
                tape.emit.reshape(&gathered, &dims)
            })
            .collect()
    }

    /// Computes the gradient of the weight from an input that is unrolled again. The unrolled input of the
    /// forward pass is not kept, because it is larger than the input by the number of taps.
    fn weight_gradient(&self, tape: &mut Tape, rows: &str) {
        let unrolled = self.unroll(tape);
        let parts = split(tape, rows, &self.parts, self.windows.outputs(), self.filters());
        let mut total: Option<String> = None;
        for ((part, unrolled), images) in parts.iter().zip(&unrolled).zip(&self.parts) {
            let dims = [images * self.windows.outputs(), self.filters()];
            let part = tape.emit.reshape(part, &dims);
            // Transposing the small matrix first is faster than a Gemm with a transposed operand.
            let flipped = tape.emit.transpose(&part, [1, 0]);
            let inputs: Vec<&str> = [flipped.as_str(), unrolled]
                .into_iter()
                .chain(total.as_deref())
                .collect();
            total = Some(tape.emit.node("Gemm", &inputs, vec![]));
        }
        if let Some(total) = total {
            tape.emit.note_product(&total, self.matrix_dims());
            let dims = [self.filters() * self.taps(), self.channels()];
            let gradient = tape.emit.reshape(&total, &dims);
            tape.accumulate_tensor(&self.weight, TensorForm::Rows, gradient);
        }
    }

    /// Accumulates and returns the gradient of the input.
    fn input_gradient(&self, tape: &mut Tape, rows: &str) -> String {
        if self.windows.is_identity() {
            let matrix = self.matrix(tape);
            let gradient = tape.emit.node("Gemm", &[rows, &matrix], vec![]);
            tape.accumulate_tensor(&self.input, TensorForm::Rows, gradient.clone());
            return gradient;
        }
        let taps = self.taps();
        let filters = self.filters();
        let channels = self.channels();
        tape.emit.set_shapes_hidden(true);
        let by_tap = tape.taps(&self.weight);
        let by_tap = tape.emit.reshape(&by_tap, &[taps, filters, channels]);
        let parts = split(tape, rows, &self.parts, self.windows.outputs(), filters);
        let mut gradients = Vec::new();
        for (part, images) in parts.iter().zip(&self.parts) {
            let gradient = window_gradient(tape, part, &self.windows, |emit, gathered, phase| {
                let positions = phase.positions.len();
                let chosen = match phase.taps.len() == taps {
                    true => by_tap.clone(),
                    false => emit.gather(&by_tap, phase.taps.iter().copied(), 0),
                };
                let width = phase.taps.len() * filters;
                let chosen = emit.reshape(&chosen, &[width, channels]);
                let gathered = emit.reshape(gathered, &[images * positions, width]);
                let product = emit.node("Gemm", &[&gathered, &chosen], vec![]);
                emit.reshape(&product, &[*images, positions, channels])
            });
            gradients.push(gradient);
        }
        tape.emit.set_shapes_hidden(false);
        let gradient = join(tape, gradients);
        let dims = [self.input.batch() * self.windows.inputs(), channels];
        let gradient = tape.emit.reshape(&gradient, &dims);
        tape.accumulate_tensor(&self.input, TensorForm::Rows, gradient.clone());
        gradient
    }
}

/// Computes the gradient of the input of windows. For every phase, it gathers the gradients `[n, outputs, m]`
/// of the windows that read the positions, calls `combine` to turn `[n, positions·taps, m]` into `[n,
/// positions, c]`, and restores the order of positions.
pub(super) fn window_gradient(
    tape: &mut Tape,
    gradient: &str,
    windows: &Windows,
    mut combine: impl FnMut(&mut Emitter, &str, &WindowPhase) -> String,
) -> String {
    let mut parts = Vec::new();
    let mut order = vec![None; windows.inputs()];
    let mut placed = 0;
    for phase in windows.phases().iter().filter(|phase| !phase.taps.is_empty()) {
        let gathered = gather_padded(tape, gradient, &phase.pattern, windows.outputs());
        parts.push(combine(&mut tape.emit, &gathered, phase));
        for position in &phase.positions {
            if let Some(place) = order.get_mut(*position) {
                *place = Some(placed);
            }
            placed += 1;
        }
    }
    let joined = match parts.as_slice() {
        [only] => only.clone(),
        parts => tape.emit.concat(parts, 1),
    };
    let order: Vec<usize> = order.into_iter().map(|place| place.unwrap_or(placed)).collect();
    if order.iter().copied().eq(0..order.len()) {
        return joined;
    }
    gather_padded(tape, &joined, &order, placed)
}
