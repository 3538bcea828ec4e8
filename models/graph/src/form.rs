//! The rules of the format that everything else relies on: one producer per name, producers before consumers.

use crate::GraphError;
use crate::onnx::{GraphProto, NodeProto};
use std::collections::HashSet;

/// Nodes a graph may have. The largest classifiers have a few thousand; everything we keep for a stranger's model grows with
/// this number.
const MOST_NODES: usize = 65_536;

/// Checks that every name is produced once, and before it is used.
pub(crate) fn check(graph: &GraphProto) -> Result<(), GraphError> {
    let count = graph.node.len();
    if count > MOST_NODES {
        return Err(malformed(format!(
            "it has {count} nodes; at most {MOST_NODES} are read"
        )));
    }
    if !graph.sparse_initializer.is_empty() {
        return Err(malformed(
            "sparse weights are not supported; export it with dense ones".into(),
        ));
    }
    let mut known: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
    known.extend(graph.initializer.iter().map(|weight| weight.name.as_str()));
    for node in &graph.node {
        for name in used(node) {
            if !known.contains(name) {
                return Err(malformed(format!(
                    "node `{}` uses `{name}` before anything produces it",
                    node.label()
                )));
            }
        }
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            if !known.insert(name) {
                return Err(malformed(format!("two nodes or weights produce `{name}`")));
            }
        }
    }
    let mut outputs = graph.output.iter().map(|output| output.name.as_str());
    match outputs.find(|name| !known.contains(name)) {
        Some(name) => Err(malformed(format!("nothing produces the output `{name}`"))),
        None => Ok(()),
    }
}

fn malformed(why: String) -> GraphError {
    GraphError::Malformed { why }
}

/// Drops the weights that neither a node reads nor the graph gives.
pub(crate) fn drop_unread(graph: &mut GraphProto) {
    let outputs = graph.output.iter().map(|output| output.name.as_str());
    let read = graph.node.iter().flat_map(used).chain(outputs);
    let read: HashSet<String> = read.map(str::to_owned).collect();
    graph.initializer.retain(|weight| read.contains(&weight.name));
}

/// The names a node reads: its inputs, and what the bodies of control flow inside it capture.
pub(crate) fn used(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> = node
        .input
        .iter()
        .map(String::as_str)
        .filter(|name| !name.is_empty())
        .collect();
    for attribute in &node.attribute {
        for body in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            captured(body, &mut names);
        }
    }
    names
}

/// Adds the names `body` reads from around it. The depth is bounded: the decoder refuses deeply nested messages.
fn captured<'a>(body: &'a GraphProto, names: &mut Vec<&'a str>) {
    let mut inside: HashSet<&str> = body.input.iter().map(|input| input.name.as_str()).collect();
    inside.extend(body.initializer.iter().map(|weight| weight.name.as_str()));
    inside.extend(
        body.node
            .iter()
            .flat_map(|node| node.output.iter().map(String::as_str)),
    );
    let outputs = body.output.iter().map(|output| output.name.as_str());
    let inner = body.node.iter().flat_map(used).chain(outputs);
    names.extend(inner.filter(|name| !inside.contains(name)));
}
