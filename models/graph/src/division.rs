//! The two sides of a cut through several tensors.

use crate::GraphError;
use crate::analysis::Analysis;
use crate::repeat::Repeated;
use std::collections::{BTreeSet, HashSet};

/// Nodes on both sides of a cut.
pub(crate) struct Division<'a> {
    pub(crate) analysis: &'a Analysis<'a>,
    pub(crate) cut: &'a [&'a str],
    /// Nodes that the tensors of the cut are computed by.
    pub(crate) before: HashSet<usize>,
    /// Nodes before the cut that can be repeated after it.
    pub(crate) repeated: Repeated<'a>,
}

impl<'a> Division<'a> {
    pub(crate) fn new(analysis: &'a Analysis<'a>, cut: &'a [&'a str]) -> Self {
        let before = analysis.links.upstream(cut.iter().copied(), crate::read_names);
        let repeated = Repeated::new(analysis, &before, cut);
        Self {
            analysis,
            cut,
            before,
            repeated,
        }
    }

    /// Returns the other tensors on the path of the data that cross the cut. They are sorted by the order of execution.
    pub(crate) fn leaks(&self) -> Result<Vec<String>, GraphError> {
        let mut leaks = Vec::new();
        let model = self.analysis.model;
        for index in BTreeSet::from_iter(self.analysis.data_path(model.output_name()?, None)) {
            let later = model.nodes().get(index);
            let Some(node) = later.filter(|_| !self.before.contains(&index)) else {
                continue;
            };
            for name in self.analysis.data_inputs(node) {
                let producer = self.analysis.links.producer(name).map(|(index, _)| index);
                let is_behind = producer.is_some_and(|index| !self.before.contains(&index));
                // Nodes inside of branches keep reading their tensors.
                let is_read = node.input.iter().any(|input| input == name);
                let is_repeated = producer.is_some_and(|index| self.repeated.contains(index));
                let is_divided = is_read && (self.cut.contains(&name) || is_repeated);
                if !is_behind && !is_divided && !leaks.iter().any(|leak| leak == name) {
                    leaks.push(name.to_owned());
                }
            }
        }
        Ok(leaks)
    }

    /// Returns true if the nodes before `other` and additional nodes are before this cut.
    pub(crate) fn is_after(&self, other: &Self) -> bool {
        self.before.len() > other.before.len() && self.before.is_superset(&other.before)
    }
}
