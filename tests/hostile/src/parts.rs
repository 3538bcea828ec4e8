//! Harmless network, the base of most hostile models.

use crate::HostileModel;
use frostline_graph::build::{batched, integers, model, node};
use frostline_graph::onnx::{GraphProto, ModelProto, NodeProto, TensorProto};
use prost::Message;

/// Elements per sample of the harmless network.
pub(crate) const WIDTH: usize = 4;

/// Returns the network `y = x + r` with the input `x: [batch, 4]`. `nodes` compute `r`.
pub(crate) fn network(nodes: Vec<NodeProto>, weights: Vec<TensorProto>) -> ModelProto {
    let mut nodes = nodes;
    nodes.push(node("Add", &["x", "r"], &["y"]));
    let graph = GraphProto {
        name: "hostile".into(),
        node: nodes,
        initializer: weights,
        input: vec![batched("x", &[WIDTH])],
        output: vec![batched("y", &[WIDTH])],
        ..GraphProto::default()
    };
    model(17, graph)
}

/// Returns the harmless network with `r = relu(x)` after `change`.
pub(crate) fn changed(change: impl FnOnce(&mut GraphProto)) -> ModelProto {
    let mut proto = network(
        vec![node("Relu", &["x"], &["r"])],
        vec![integers("w", &[1, 2, 3])],
    );
    if let Some(graph) = &mut proto.graph {
        change(graph);
    }
    proto
}

pub(crate) fn hostile(
    name: &'static str,
    proto: &ModelProto,
    expected_fragments: &'static [&'static str],
) -> HostileModel {
    HostileModel {
        name,
        file: proto.encode_to_vec(),
        expected_fragments,
    }
}
