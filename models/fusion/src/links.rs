use frostline_graph::onnx::NodeProto;
use frostline_graph::{Model, read_names};
use std::collections::{HashMap, HashSet};

/// Producers and readers of a graph's values.
pub(crate) struct Links<'a> {
    nodes: &'a [NodeProto],
    producers: HashMap<&'a str, usize>,
    readers: HashMap<&'a str, Vec<usize>>,
    outputs: HashSet<&'a str>,
}

impl<'a> Links<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        let nodes = model.nodes();
        let mut producers = HashMap::new();
        let mut readers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            producers.extend(node.output.iter().map(|name| (name.as_str(), index)));
            for name in read_names(node) {
                readers.entry(name).or_default().push(index);
            }
        }
        Self {
            nodes,
            producers,
            readers,
            outputs: model
                .outputs()
                .iter()
                .map(|output| output.name.as_str())
                .collect(),
        }
    }

    /// Returns the index and the producer of the value.
    pub(crate) fn producer(&self, value: &str) -> Option<(usize, &'a NodeProto)> {
        let index = *self.producers.get(value)?;
        self.nodes.get(index).map(|node| (index, node))
    }

    /// Returns the indices of the nodes that read the value, once for each read.
    pub(crate) fn readers(&self, value: &str) -> &[usize] {
        self.readers.get(value).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn node(&self, index: usize) -> Option<&'a NodeProto> {
        self.nodes.get(index)
    }

    /// Returns true if the value is an output of the graph.
    pub(crate) fn is_output(&self, value: &str) -> bool {
        self.outputs.contains(value)
    }
}
