//! Selects the model-local functions and operator sets that a slice needs.

use crate::GraphError;
use crate::onnx::{FunctionHead, NodeProto, OperatorSetId};
use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Encoded model-local function and the decoded fields.
pub(crate) struct Function {
    head: FunctionHead,
    pub(crate) bytes: Bytes,
}

/// Normalizes the name of a domain, since ONNX's standard domain has two spellings.
fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// Decodes name, nodes and attributes of a function.
pub(crate) fn head(function: &Bytes) -> Result<FunctionHead, GraphError> {
    FunctionHead::decode(function.clone()).map_err(|_| GraphError::Malformed {
        why: "a function of the model is damaged".into(),
    })
}

/// Domain and name of a function.
type Id = (String, String);

/// Returns the functions that `nodes` call directly or through other functions. The order is the same as in
/// the file.
pub(crate) fn needed(nodes: &[NodeProto], functions: &[Bytes]) -> Result<Vec<Function>, GraphError> {
    let functions: Vec<Function> = functions
        .iter()
        .map(|bytes| {
            let bytes = bytes.clone();
            head(&bytes).map(|head| Function { head, bytes })
        })
        .collect::<Result<_, _>>()?;
    let mut wanted: HashSet<Id> = HashSet::new();
    let mut open: Vec<Id> = calls(nodes).into_iter().collect();
    let mut by_id: HashMap<Id, Vec<&Function>> = HashMap::new();
    for function in &functions {
        by_id.entry(function.id()).or_default().push(function);
    }
    while let Some(id) = open.pop() {
        let Some(called) = by_id.get(&id) else { continue };
        if wanted.insert(id) {
            open.extend(called.iter().flat_map(|function| calls(&function.head.node)));
        }
    }
    Ok(functions
        .into_iter()
        .filter(|function| wanted.contains(&function.id()))
        .collect())
}

impl Function {
    fn id(&self) -> Id {
        (domain(&self.head.domain).to_owned(), self.head.name.clone())
    }
}

fn calls(nodes: &[NodeProto]) -> HashSet<Id> {
    every_node(nodes)
        .into_iter()
        .map(|node| (domain(&node.domain).to_owned(), node.op_type.clone()))
        .collect()
}

/// Returns all nodes, including those in the bodies of control flow.
pub(crate) fn every_node(nodes: &[NodeProto]) -> Vec<&NodeProto> {
    let mut all: Vec<&NodeProto> = Vec::new();
    let mut open: Vec<&NodeProto> = nodes.iter().collect();
    while let Some(node) = open.pop() {
        all.push(node);
        let bodies = node
            .attribute
            .iter()
            .flat_map(|attribute| attribute.g.as_deref().into_iter().chain(&attribute.graphs));
        open.extend(bodies.flat_map(|body| &body.node));
    }
    all
}

/// Returns the imported operator sets of the domains that `nodes` and `functions` use, and always ONNX's
/// standard one.
pub(crate) fn opsets(
    nodes: &[NodeProto],
    functions: &[Function],
    imported: &[OperatorSetId],
) -> Vec<OperatorSetId> {
    let mut domains: BTreeSet<&str> = BTreeSet::from([""]);
    domains.extend(every_node(nodes).into_iter().map(|node| domain(&node.domain)));
    for function in functions {
        domains.insert(domain(&function.head.domain));
        domains.extend(
            every_node(&function.head.node)
                .into_iter()
                .map(|node| domain(&node.domain)),
        );
    }
    imported
        .iter()
        .filter(|set| domains.contains(domain(&set.domain)))
        .cloned()
        .collect()
}
