//! Finding the single-tensor cuts of a DAG.

use crate::analysis::Analysis;
use crate::kinds::reads_shape;
use std::collections::{HashMap, HashSet};

/// Values through which everything flows from `input` to `output`, with the places of their nodes, in order of execution.
///
/// One sweep over the nodes that carry data to the output: a value is live from its node to its last reader, and a value that is
/// alone when it is made separates what comes before from what comes after. Values computed from shapes only do
/// not count; they can be computed again on the other side.
pub(crate) fn crossings<'a>(
    analysis: &Analysis<'a>,
    input: &'a str,
    output: &'a str,
) -> Vec<(usize, &'a str)> {
    let path = analysis.data_path(output, None);
    let nodes = || {
        analysis
            .model
            .nodes()
            .iter()
            .enumerate()
            .filter(|(index, _)| path.contains(index))
    };
    let mut last_reader: HashMap<&str, usize> = HashMap::from([(output, usize::MAX)]);
    for (index, node) in nodes() {
        for name in analysis.data_inputs(node) {
            last_reader
                .entry(name)
                .and_modify(|last| *last = index.max(*last))
                .or_insert(index);
        }
    }
    let mut live: HashSet<&str> = HashSet::from([input]);
    let mut cuts = Vec::new();
    for (index, node) in nodes() {
        live.retain(|name| last_reader.get(name).is_some_and(|&last| last > index));
        let made = node
            .output
            .iter()
            .map(String::as_str)
            .filter(|name| last_reader.contains_key(name));
        live.extend(made.clone());
        if let (1, Some(name)) = (live.len(), made.clone().next()) {
            cuts.push((index, name));
        }
    }
    cuts.retain(|&(index, _)| !hides_a_shape(analysis, index));
    cuts
}

/// Whether behind the cut made by node `index` someone asks for the shape of a value before it that is not known.
fn hides_a_shape(analysis: &Analysis<'_>, index: usize) -> bool {
    let unknown = |name: &String| {
        let before = analysis
            .producer(name)
            .is_some_and(|(producer, _)| producer < index);
        before && analysis.kinds.is_data(name) && analysis.probes.dims(name).is_none()
    };
    let nodes = analysis.model.nodes().iter();
    nodes
        .filter(|node| reads_shape(node))
        .any(|node| node.input.iter().any(unknown))
}
