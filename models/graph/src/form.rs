//! Rules of the format that the rest of the crate relies on. A name has a single producer, and producers come
//! before consumers.

use crate::GraphError;
use crate::onnx::{GraphProto, NodeProto};
use std::collections::HashSet;

/// Maximum number of nodes in a graph. The largest classifiers have a few thousand, and the memory used for
/// an untrusted model grows with this number.
const MOST_NODES: usize = 65_536;

/// Checks that every name has a single producer before the first use. The function also refuses sparse
/// weights and graphs with more than [`MOST_NODES`] nodes.
pub(crate) fn check(graph: &GraphProto) -> Result<(), GraphError> {
    let count = graph.node.len();
    if count > MOST_NODES {
        return Err(malformed(format!(
            "it has {count} nodes, which exceeds the limit of {MOST_NODES}"
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
        for name in read_names(node) {
            if !known.contains(name) {
                return Err(malformed(format!(
                    "node `{}` uses `{name}` before it is produced",
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

/// Removes the nodes and weights whose values are neither read nor outputs of the graph.
pub fn drop_unread(graph: &mut GraphProto) {
    let mut read: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let mut nodes = Vec::with_capacity(graph.node.len());
    for node in std::mem::take(&mut graph.node).into_iter().rev() {
        if node.output.iter().any(|name| read.contains(name)) {
            read.extend(read_names(&node).into_iter().map(str::to_owned));
            nodes.push(node);
        }
    }
    nodes.reverse();
    graph.node = nodes;
    let weights = std::mem::take(&mut graph.initializer).into_iter();
    let (kept, dropped): (Vec<_>, Vec<_>) = weights.partition(|weight| read.contains(&weight.name));
    graph.initializer = kept;
    // Files may list weights as inputs. Without the weight, such an input would be required.
    let dropped: HashSet<&str> = dropped.iter().map(|weight| weight.name.as_str()).collect();
    graph.input.retain(|input| !dropped.contains(input.name.as_str()));
}

/// Removes the inputs that no node reads.
pub fn drop_unread_inputs(graph: &mut GraphProto) {
    let read = graph.node.iter().flat_map(read_names).map(str::to_owned);
    let read: HashSet<String> = read.collect();
    graph.input.retain(|input| read.contains(&input.name));
}

/// Returns the names that a node reads. These are the inputs and, for control flow, the values captured by
/// the bodies.
pub fn read_names(node: &NodeProto) -> Vec<&str> {
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

/// Adds the names that `body` reads from the enclosing graph. The recursion is bounded, because the decoder
/// refuses deeply nested messages.
fn captured<'a>(body: &'a GraphProto, names: &mut Vec<&'a str>) {
    let mut inside: HashSet<&str> = body.input.iter().map(|input| input.name.as_str()).collect();
    inside.extend(body.initializer.iter().map(|weight| weight.name.as_str()));
    inside.extend(
        body.node
            .iter()
            .flat_map(|node| node.output.iter().map(String::as_str)),
    );
    let outputs = body.output.iter().map(|output| output.name.as_str());
    let inner = body.node.iter().flat_map(read_names).chain(outputs);
    names.extend(inner.filter(|name| !inside.contains(name)));
}
