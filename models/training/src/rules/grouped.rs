//! Conv in groups with more than a single channel.
//!
//! Matrix products per group would be small. Therefore the forward pass uses Conv in ONNX Runtime and the
//! gradient of the input uses ConvTranspose, which visit every element of a kernel a single time. The
//! gradient of the weight is a sum over all images and positions. As in an ordinary convolution, the inputs
//! of all taps are gathered, but by group, and a batched MatMul computes the products of all groups.

use super::depthwise;
use super::parts::{gather_padded, parts, split};
use super::tiled::bias_gradient;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Float;
use crate::tape::{Tape, TensorForm, Value};
use crate::windows::Windows;
use frostline_graph::build;

#[derive(Clone)]
struct Grouped {
    input: Value,
    weight: Value,
    windows: Windows,
    groups: usize,
}

/// Emits a Conv with several groups, in [`depthwise`] if every group has a single channel and blocks pay off.
///
/// # Errors
/// Returns [`TrainingError::Unsupported`] in `f64`, because Conv in ONNX Runtime does not support it, except
/// for convolutions in [`depthwise`].
pub(super) fn conv(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    windows: Windows,
    groups: usize,
) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let weight = call.value(1)?;
    let bias = call.optional(2);
    if groups == input.channels() && groups == weight.batch() {
        let blocks = windows.blocks();
        if depthwise::is_faster(&blocks) {
            return depthwise::conv(tape, call, blocks);
        }
    }
    if tape.emit.float != Float::F32 {
        return Err(call.unsupported("convolutions in groups are computed in f32 only"));
    }
    let x = tape.standard(&input);
    let w = tape.standard(&weight);
    let b = bias.as_ref().map(|bias| tape.standard(bias));
    let inputs: Vec<&str> = [x.as_str(), &w].into_iter().chain(b.as_deref()).collect();
    let conv = Grouped {
        input,
        weight,
        windows,
        groups,
    };
    let mut attributes = conv.windows.attributes();
    attributes.push(build::int("group", groups as i64));
    let result = tape.emit.node("Conv", &inputs, attributes);
    let output = call.output(TensorForm::Standard, result);
    tape.on_backward(&output, move |tape, gradient| {
        bias_gradient(tape, bias, gradient, TensorForm::Standard);
        if conv.weight.is_differentiable() {
            conv.weight_gradient(tape, gradient);
        }
        if conv.input.is_differentiable() {
            conv.input_gradient(tape, gradient, &w);
        }
    });
    Ok(output)
}

impl Grouped {
    fn channels(&self) -> usize {
        self.input.channels()
    }

    /// Returns the number of input channels in a group.
    fn depth(&self) -> usize {
        self.channels() / self.groups.max(1)
    }

    fn filters(&self) -> usize {
        self.weight.batch()
    }

    fn input_gradient(&self, tape: &mut Tape, gradient: &Value, weight: &str) {
        let dy = tape.standard(gradient);
        let mut attributes = self.windows.attributes();
        attributes.push(build::int("group", self.groups as i64));
        attributes.push(build::ints("output_padding", &self.windows.unreached()));
        let dx = tape.emit.node("ConvTranspose", &[&dy, weight], attributes);
        tape.accumulate_tensor(&self.input, TensorForm::Standard, dx);
    }

    fn weight_gradient(&self, tape: &mut Tape, gradient: &Value) {
        let x = tape.rows(&self.input);
        let dy = tape.rows(gradient);
        let windows = &self.windows;
        let channels = self.channels();
        let bytes = windows.outputs() * windows.taps() * channels * size_of::<f32>();
        let sizes = parts(self.input.batch(), bytes);
        let inputs = split(tape, &x, &sizes, windows.inputs(), channels);
        let gradients = split(tape, &dy, &sizes, windows.outputs(), self.filters());
        let mut total: Option<String> = None;
        for ((x, dy), images) in inputs.iter().zip(&gradients).zip(&sizes) {
            let part = self.by_group(tape, x, dy, *images);
            total = Some(match total {
                Some(total) => tape.emit.add(&total, &part),
                None => part,
            });
        }
        if let Some(total) = total {
            self.accumulate(tape, &total);
        }
    }

    /// Computes `[groups, filters per group, taps·depth]` from images `[images, positions, channels]`.
    fn by_group(&self, tape: &mut Tape, x: &str, dy: &str, images: usize) -> String {
        let windows = &self.windows;
        let groups = self.groups;
        let depth = self.depth();
        let filters = self.filters() / groups.max(1);
        let apart = tape.emit.reshape(x, &[images, windows.inputs(), groups, depth]);
        let apart = tape.emit.transpose(&apart, [2, 0, 1, 3]);
        let dims = [groups * images, windows.inputs(), depth];
        let apart = tape.emit.reshape(&apart, &dims);
        let seen = gather_padded(tape, &apart, &windows.pattern(), windows.inputs());
        let rows = images * windows.outputs();
        let seen = tape.emit.reshape(&seen, &[groups, rows, windows.taps() * depth]);
        let dy = tape.emit.reshape(dy, &[rows, groups, filters]);
        let dy = tape.emit.transpose(&dy, [1, 2, 0]);
        tape.emit.node("MatMul", &[&dy, &seen], vec![])
    }

    /// Accumulates a result of [`Self::by_group`] in the layout of the weight, `[filters, depth, taps]`.
    fn accumulate(&self, tape: &mut Tape, total: &str) {
        let dims = [self.filters(), self.windows.taps(), self.depth()];
        let by_tap = tape.emit.reshape(total, &dims);
        let by_filter = tape.emit.transpose(&by_tap, [0, 2, 1]);
        let gradient = tape.emit.reshape(&by_filter, self.weight.shape());
        tape.accumulate_tensor(&self.weight, TensorForm::Standard, gradient);
    }
}
