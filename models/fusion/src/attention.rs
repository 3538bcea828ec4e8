//! Replaces attention by ONNX Runtime's `MultiHeadAttention`.
//!
//! Operator: <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MultiHeadAttention>

mod linear;
mod pattern;
mod rewrite;
mod sources;
mod targets;

use crate::links::Links;
use frostline_graph::onnx::{GraphProto, ModelProto, NodeProto, OperatorSetId, data_type};
use frostline_graph::{GraphError, Model, Shapes, ValueShape};
use rewrite::Rewrite;

/// Domain of ONNX Runtime's own operators.
const DOMAIN: &str = "com.microsoft";

/// First operator set in which `Softmax` normalizes a single axis, and axes are inputs of `Squeeze`.
const FIRST_OPSET: i64 = 13;

/// Batch sizes for which shapes are inferred. A size that is equal for both does not depend on the batch.
/// They are primes beyond usual lengths of sequences, so that no axis is mistaken for the batch.
const BATCHES: [usize; 2] = [1009, 1013];

/// Replaces each attention, `Softmax(scale * Q * K^T + bias) * V`, by a `MultiHeadAttention`. Returns the
/// network and the number of replaced attentions.
///
/// The pattern is found by its structure, so exporters may scale before or after the product, in parts and at
/// any layer in between, and order the axes in any way. The fused operator reads the tensors from which query,
/// key and value were reshaped, so these reshapes and transpositions disappear, also if a linear layer is in
/// between. The batch is free, and lengths and heads are fixed. An attention is not replaced if
///
/// - another node or the network's output reads a score or a probability,
/// - scores are masked by other means than adding a bias with an entry per query and key (such as the masks
///   per window of Swin), or the scale is not a single positive constant,
/// - its sizes are unknown or depend on the batch, or the operators are older than set 13.
///
/// Some exporters replace NaN in probabilities with 0. The fused operator does not. The results differ only for
/// queries whose scores are all infinite.
///
/// # Errors
/// Returns the errors of [`Model::from_proto`].
pub fn fuse_attention(model: &Model) -> Result<(Model, usize), GraphError> {
    let unchanged = || Ok((model.clone(), 0));
    if model.opset() < FIRST_OPSET {
        return unchanged();
    }
    // Without shapes, no attention is known.
    let Ok(simple) = targets::with_constant_targets(model) else {
        return unchanged();
    };
    let fused = fuse_as_written(&simple)?;
    if fused.1 == 0 {
        return unchanged();
    }
    // Both orders compute the same. The network with fewer transpositions is faster.
    let moved = linear::transposed_at_attention(&simple).and_then(|moved| fuse_as_written(&moved));
    Ok(match moved {
        Ok(moved) if moved.1 == fused.1 && transpositions(&moved.0) < transpositions(&fused.0) => moved,
        _ => fused,
    })
}

/// Returns the number of transpositions of tensors other than weights.
fn transpositions(model: &Model) -> usize {
    let constants = model.constants();
    let nodes = model
        .nodes()
        .iter()
        .filter(|node| node.standard_operator() == Some("Transpose"));
    let inputs = nodes.filter_map(|node| node.input_name(0));
    inputs.filter(|input| !constants.contains_key(input)).count()
}

/// Fuses attention without moving other nodes.
fn fuse_as_written(model: &Model) -> Result<(Model, usize), GraphError> {
    let network = AttentionGraph {
        links: Links::new(model),
        shapes: model.shapes(BATCHES[0])?,
        others: model.shapes(BATCHES[1])?,
    };
    let mut rewrite = Rewrite::default();
    for (index, node) in model.nodes().iter().enumerate() {
        if let Some(attention) = network.attention(index, node) {
            rewrite.replace(&network, &attention);
        }
    }
    let count = rewrite.count();
    let graph = rewrite.graph(model.graph());
    Ok((with_domain(model, graph)?.without_unread(), count))
}

/// Returns a model with `graph` that imports ONNX Runtime's operators.
fn with_domain(model: &Model, graph: GraphProto) -> Result<Model, GraphError> {
    let mut proto = ModelProto {
        graph: Some(graph),
        ..model.clone().into_proto()
    };
    if proto.opset_import.iter().all(|set| set.domain != DOMAIN) {
        proto.opset_import.push(OperatorSetId {
            domain: DOMAIN.into(),
            version: 1,
        });
    }
    Model::from_proto(proto)
}

/// Network in which attention is searched.
struct AttentionGraph<'a> {
    links: Links<'a>,
    shapes: Shapes,
    /// Shapes for another batch size.
    others: Shapes,
}

impl<'a> AttentionGraph<'a> {
    fn dims(&self, value: &str) -> Option<&[usize]> {
        self.shapes.dims(value)
    }

    /// Returns the shape if the element type is the one of a network and only the first axis depends on the
    /// batch.
    fn floats(&self, value: &str) -> Option<ValueShape> {
        let [shape, other] = [self.shapes.get(value)?, self.others.get(value)?];
        let fixed = shape.dims.get(1..) == other.dims.get(1..);
        let float = matches!(shape.data_type, data_type::FLOAT | data_type::FLOAT16);
        let full = shape.dims.iter().all(|&dim| dim > 0);
        (fixed && float && full).then_some(shape)
    }

    /// Returns the operand and the factor of a node that multiplies a value by a constant number.
    fn scaled(&self, node: &'a NodeProto) -> Option<(&'a str, f64)> {
        let [first, second] = [node.input_name(0)?, node.input_name(1)?];
        let (value, factor) = match node.standard_operator()? {
            "Mul" => match self.number(second) {
                Some(factor) => (first, factor),
                None => (second, self.number(first)?),
            },
            "Div" => (first, self.number(second)?.recip()),
            _ => return None,
        };
        let keeps_shape = self.dims(value)? == self.dims(node.output_name(0)?)?;
        keeps_shape.then_some((value, factor))
    }

    /// Returns the only element of a value if it is known and does not depend on the batch.
    fn number(&self, value: &str) -> Option<f64> {
        let [number, other] = [&self.shapes, &self.others].map(|shapes| shapes.numbers(value));
        match number? {
            &[number] if other == Some(&[number]) => Some(number),
            _ => None,
        }
    }

    /// Returns the input if the node does not change it.
    fn unchanged(&self, node: &'a NodeProto) -> Option<&'a str> {
        let input = node.input_name(0)?;
        match node.standard_operator()? {
            "Identity" => Some(input),
            "Cast" => {
                let [from, to] = [input, node.output_name(0)?].map(|value| self.shapes.get(value));
                (from?.data_type == to?.data_type).then_some(input)
            }
            _ => None,
        }
    }
}
