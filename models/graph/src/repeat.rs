//! Nodes before a joint cut that are repeated after it. Attention masks have an element per pair of tokens, but follow
//! from a mask with an element per token. If a cut contains the small one, the nodes between them are repeated.

use crate::analysis::Analysis;
use crate::kinds::ValueKind;
use crate::onnx::NodeProto;
use crate::onnx::data_type::is_float;
use crate::operators;
use std::collections::{BTreeSet, HashSet};

/// Nodes that can be repeated after a cut.
pub(crate) struct Repeated<'a> {
    analysis: &'a Analysis<'a>,
    nodes: HashSet<usize>,
}

impl<'a> Repeated<'a> {
    /// Finds the nodes among `before` that only read integers and booleans of the cut, values that follow from these,
    /// shapes and small constants.
    pub(crate) fn new(analysis: &'a Analysis<'a>, before: &HashSet<usize>, cut: &[&str]) -> Self {
        let mut found = Self {
            analysis,
            nodes: HashSet::new(),
        };
        let sources: HashSet<&str> = cut
            .iter()
            .copied()
            .filter(|name| !is_float(analysis.probes.data_type(name)))
            .collect();
        if sources.is_empty() {
            return found;
        }
        let mut known = sources.clone();
        for (index, node) in analysis.model.nodes().iter().enumerate() {
            let is_cut = node.output.iter().any(|name| cut.contains(&name.as_str()));
            if before.contains(&index) && !is_cut && found.is_cheap(node) {
                let mut reads = analysis.data_inputs(node).peekable();
                if reads.peek().is_some() && reads.all(|name| known.contains(name)) {
                    found.nodes.insert(index);
                    known.extend(node.output.iter().map(String::as_str));
                }
            }
        }
        found
    }

    /// Returns true for a plain operator without weights.
    fn is_cheap(&self, node: &NodeProto) -> bool {
        let probes = &self.analysis.probes;
        operators::find(node).is_some_and(|operator| operator.versions.is_some())
            && !node.input.iter().any(|name| {
                let elements = probes.small_dims(name).map(|dims| dims.iter().product::<usize>());
                let is_constant = self.analysis.kinds.get(name) == ValueKind::Constant;
                is_constant && is_float(probes.data_type(name)) && elements != Some(1)
            })
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.nodes.contains(&index)
    }

    /// Returns the nodes that the nodes `later` require, in the order of execution.
    pub(crate) fn needed(&self, later: &[&NodeProto]) -> BTreeSet<usize> {
        let mut needed = BTreeSet::new();
        let mut open: Vec<&str> = later
            .iter()
            .flat_map(|node| node.input.iter().map(String::as_str))
            .collect();
        while let Some(name) = open.pop() {
            if let Some((index, node)) = self.analysis.links.producer(name)
                && self.contains(index)
                && needed.insert(index)
            {
                open.extend(node.input.iter().map(String::as_str));
            }
        }
        needed
    }
}
