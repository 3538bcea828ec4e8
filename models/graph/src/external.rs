//! Finds tensors with external data anywhere in a model, including subgraphs and functions.

use crate::GraphError;
use crate::onnx::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

/// Refuses a model with external data, because an engine would open the file that it refers to.
pub(crate) fn refuse(proto: &ModelProto, why: &str) -> Result<(), GraphError> {
    if let Some(tensor) = proto.graph.as_ref().and_then(in_graph) {
        return Err(refused(tensor, why));
    }
    for bytes in &proto.functions {
        let function = crate::functions::head(bytes)?;
        if let Some(tensor) = function
            .node
            .iter()
            .find_map(in_node)
            .or_else(|| in_attributes(&function.attribute))
        {
            return Err(refused(tensor, why));
        }
    }
    Ok(())
}

pub(crate) fn refused(tensor: &TensorProto, why: &str) -> GraphError {
    GraphError::ExternalData {
        tensor: tensor.name.clone(),
        location: location(tensor).into(),
        why: why.into(),
    }
}

fn in_graph(graph: &GraphProto) -> Option<&TensorProto> {
    graph
        .initializer
        .iter()
        .find(|tensor| is_outside(tensor))
        .or_else(|| graph.node.iter().find_map(in_node))
}

fn in_node(node: &NodeProto) -> Option<&TensorProto> {
    in_attributes(&node.attribute)
}

fn in_attributes(attributes: &[AttributeProto]) -> Option<&TensorProto> {
    attributes.iter().find_map(|attribute| {
        let tensors = attribute.t.iter().chain(&attribute.tensors);
        let bodies = attribute.g.as_deref().into_iter().chain(&attribute.graphs);
        tensors
            .into_iter()
            .find(|tensor| is_outside(tensor))
            .or_else(|| bodies.into_iter().find_map(in_graph))
    })
}

pub(crate) fn is_outside(tensor: &TensorProto) -> bool {
    tensor.data_location != 0 || !tensor.external_data.is_empty()
}

/// Returns an entry of the description of a tensor's external data.
pub(crate) fn entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    tensor
        .external_data
        .iter()
        .find(|entry| entry.key == key)
        .map(|entry| entry.value.as_str())
}

/// Returns the path of the file with the tensor's data, or an empty string.
pub(crate) fn location(tensor: &TensorProto) -> &str {
    entry(tensor, "location").unwrap_or_default()
}
