//! Operators that normalize elements and keep the shape of the first input.

use super::operator::Effort::Passing;
use super::operator::HeadPart::Tail;
use super::operator::Operator;
use super::reduction::along_axis;
use crate::values::{RowView, SampleAxis};

pub(super) const OPERATORS: &[Operator] = &[
    normalization("BatchNormalization", 1)
        .rows(|view| {
            let frozen = view.node.int("training_mode").unwrap_or(0) == 0;
            frozen.then(|| on_first_axis(view))?
        })
        .weights(1..3)
        .numbers(true)
        .effort(Passing),
    normalization("GroupNormalization", 18)
        .rows(on_first_axis)
        .weights(1..3)
        .numbers(true),
    normalization("Hardmax", 1).rows(softmax),
    normalization("InstanceNormalization", 1)
        .rows(on_first_axis)
        .weights(1..3)
        .numbers(true)
        .constant(Some(changes_nothing)),
    normalization("LRN", 1)
        .rows(on_first_axis)
        .taps(|node| node.int("size").map_or(1.0, |size| size as f64)),
    normalization("LayerNormalization", 17)
        .rows(layer_normalization)
        .weights(1..3)
        .numbers(true)
        .effort(Passing),
    activation("LogSoftmax"),
    normalization("LpNormalization", 1)
        .rows(along_axis)
        .weights(0..1)
        .numbers(true),
    normalization("MeanVarianceNormalization", 9)
        .weights(0..1)
        .numbers(true),
    normalization("RMSNormalization", 23)
        .rows(layer_normalization)
        .weights(1..2)
        .numbers(true),
    activation("Softmax"),
];

/// Creates a normalization. Additional outputs are statistics. This rule does not infer the shapes.
const fn normalization(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, |context| context.same_output()).shrinks(true)
}

/// Creates a softmax, which is an activation function as well.
const fn activation(name: &'static str) -> Operator {
    let operator = normalization(name, 1).rows(softmax);
    operator.activates(true).head(Tail)
}

/// Returns true for a scale of ones and a bias of zeros. Exporters use them to express a different
/// normalization, such as GroupNorm, with a separate affine part or without an affine part.
fn changes_nothing(values: &[Vec<f64>]) -> bool {
    let [scale, bias] = values else {
        return false;
    };
    scale.iter().all(|value| *value == 1.0) && bias.iter().all(|value| *value == 0.0)
}

/// Row rule for operators that process each entry of the first axis separately.
pub(super) fn on_first_axis(view: &RowView<'_>) -> Option<SampleAxis> {
    view.only_samples().filter(|samples| samples.axis == 0)
}

/// Before operator set 13, softmax operators normalize over all axes from `axis`.
fn softmax(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let since_13 = view.context().opset >= 13;
    let axis = view.axis(if since_13 { -1 } else { 1 })?;
    let apart = if since_13 {
        samples.axis != axis
    } else {
        samples.axis < axis
    };
    apart.then_some(samples)
}

fn layer_normalization(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.only_samples()?;
    (samples.axis < view.axis(-1)?).then_some(samples)
}
