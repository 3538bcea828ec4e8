//! Data flow between the nodes of a graph.

use crate::onnx::NodeProto;
use crate::{Model, read_names};
use std::collections::{HashMap, HashSet};

/// Producers and readers of a graph's values.
pub struct Links<'a> {
    nodes: &'a [NodeProto],
    producers: HashMap<&'a str, usize>,
    readers: HashMap<&'a str, Vec<usize>>,
    outputs: HashSet<&'a str>,
}

impl<'a> Links<'a> {
    /// Links the nodes of a graph. None of the values is an output of the graph.
    pub fn new(nodes: &'a [NodeProto]) -> Self {
        let mut producers = HashMap::new();
        let mut readers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            producers.extend(outputs.map(|name| (name.as_str(), index)));
            for name in read_names(node) {
                readers.entry(name).or_default().push(index);
            }
        }
        Self {
            nodes,
            producers,
            readers,
            outputs: HashSet::new(),
        }
    }

    /// Links the nodes of a model.
    pub fn of_model(model: &'a Model) -> Self {
        let outputs = model.outputs().iter();
        Self {
            outputs: outputs.map(|output| output.name.as_str()).collect(),
            ..Self::new(model.nodes())
        }
    }

    /// Returns the index and the producer of the value, or `None` for inputs and weights.
    pub fn producer(&self, value: &str) -> Option<(usize, &'a NodeProto)> {
        let index = *self.producers.get(value)?;
        self.node(index).map(|node| (index, node))
    }

    /// Returns the indices of the nodes that read the value, once for each read.
    pub fn readers(&self, value: &str) -> &[usize] {
        self.readers.get(value).map_or(&[], Vec::as_slice)
    }

    /// Returns the reader if the value has exactly one and is not an output of the graph.
    pub fn only_reader(&self, value: &str) -> Option<usize> {
        match self.readers(value) {
            &[reader] if !self.is_output(value) => Some(reader),
            _ => None,
        }
    }

    /// Returns the node with this index.
    pub fn node(&self, index: usize) -> Option<&'a NodeProto> {
        self.nodes.get(index)
    }

    /// Returns true if the value is an output of the graph.
    pub fn is_output(&self, value: &str) -> bool {
        self.outputs.contains(value)
    }

    /// Returns the indices of the nodes from which `values` are computed. The search continues with the values that
    /// `inputs` returns for a node.
    pub fn upstream<'n>(
        &self,
        values: impl IntoIterator<Item = &'n str>,
        inputs: impl Fn(&'a NodeProto) -> Vec<&'a str>,
    ) -> HashSet<usize>
    where
        'a: 'n,
    {
        let mut found = HashSet::new();
        let mut open: Vec<&str> = values.into_iter().collect();
        while let Some(name) = open.pop() {
            if let Some((index, node)) = self.producer(name)
                && found.insert(index)
            {
                open.extend(inputs(node));
            }
        }
        found
    }
}
