//! Replaces attention by ONNX Runtime's `MultiHeadAttention`.
//!
//! Operator: <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MultiHeadAttention>

mod graph;
mod linear;
mod pattern;
mod rewrite;
mod sources;
mod targets;

use frostline_graph::onnx::{GraphProto, ModelProto, OperatorSetId};
use frostline_graph::{GraphError, Model};
use graph::{AttentionGraph, DOMAIN};
use rewrite::AttentionRewrite;

/// First operator set in which `Softmax` normalizes a single axis, and axes are inputs of `Squeeze`.
const FIRST_OPSET: i64 = 13;

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
    Ok(fused(model)?.unwrap_or_else(|| (model.clone(), 0)))
}

/// Returns the network and the number of replaced attentions, or `None` if there are none.
fn fused(model: &Model) -> Result<Option<(Model, usize)>, GraphError> {
    if model.opset() < FIRST_OPSET {
        return Ok(None);
    }
    // Without shapes, no attention is known.
    let Ok(simple) = targets::with_constant_targets(model) else {
        return Ok(None);
    };
    let fused = fuse_as_written(&simple)?;
    if fused.1 == 0 {
        return Ok(None);
    }
    // Both orders compute the same. The network with fewer transpositions is faster.
    let moved = linear::transposed_at_attention(&simple).and_then(|moved| fuse_as_written(&moved));
    Ok(Some(match moved {
        Ok(moved) if moved.1 == fused.1 && transpositions(&moved.0) < transpositions(&fused.0) => moved,
        _ => fused,
    }))
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
    let network = AttentionGraph::new(model)?;
    let mut rewrite = AttentionRewrite::default();
    for (index, node) in model.nodes().iter().enumerate() {
        if let Some(attention) = network.attention(index, node) {
            rewrite.replace(&network, &attention);
        }
    }
    let graph = rewrite.changes.applied_to(model.graph());
    Ok((with_domain(model, graph)?.without_unread(), rewrite.count))
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
