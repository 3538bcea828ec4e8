use crate::onnx::{GraphProto, NodeProto, TensorProto};
use std::collections::HashMap;

/// Changes of a graph.
#[derive(Default)]
pub struct GraphChanges {
    /// New nodes in place of the node with this index.
    replaced: HashMap<usize, Vec<NodeProto>>,
    /// Additional weights.
    pub constants: Vec<TensorProto>,
}

impl GraphChanges {
    /// Replaces a node. New nodes without metadata get its metadata, which identifies the module.
    pub fn replace(&mut self, index: usize, original: &NodeProto, new: impl IntoIterator<Item = NodeProto>) {
        let new = new.into_iter().map(|mut node| {
            if node.metadata_props.is_empty() {
                node.metadata_props.clone_from(&original.metadata_props);
            }
            node
        });
        self.replaced.insert(index, new.collect());
    }

    /// Removes nodes, unless they are replaced.
    pub fn remove(&mut self, indices: impl IntoIterator<Item = usize>) {
        for index in indices {
            self.replaced.entry(index).or_default();
        }
    }

    /// Returns true if the node with this index is replaced or removed.
    pub fn contains(&self, index: usize) -> bool {
        self.replaced.contains_key(&index)
    }

    /// Returns true if no node is replaced or removed.
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }

    /// Returns `graph` with the changes.
    pub fn applied_to(mut self, graph: &GraphProto) -> GraphProto {
        let nodes = graph.node.iter().enumerate().flat_map(|(index, node)| {
            let replaced = self.replaced.remove(&index);
            replaced.unwrap_or_else(|| vec![node.clone()])
        });
        GraphProto {
            node: nodes.collect(),
            initializer: [graph.initializer.as_slice(), &self.constants].concat(),
            ..graph.clone()
        }
    }
}
