//! Data flow between nodes, used to decide if a step can write the next tensor of a slot in place.

use frostline_graph::onnx::NodeProto;
use frostline_graph::{Links, read_names};
use std::collections::HashSet;

/// Edges between nodes.
pub(crate) struct Readers<'a>(Links<'a>);

impl<'a> Readers<'a> {
    pub(crate) fn new(nodes: &'a [NodeProto]) -> Self {
        Self(Links::new(nodes))
    }

    /// Returns the index of the node that computes `tensor`, or `None` for inputs and constants.
    pub(crate) fn maker(&self, tensor: &str) -> Option<usize> {
        self.0.producer(tensor).map(|(index, _)| index)
    }

    /// Returns the index of the node that computes `tensor`, looking through transposes and views. Returns
    /// `None` for inputs and constants.
    pub(crate) fn origin(&self, tensor: &str) -> Option<usize> {
        let (mut origin, mut node) = self.0.producer(tensor)?;
        while node.rearranges() {
            match node.input.first().and_then(|input| self.0.producer(input)) {
                Some(maker) => (origin, node) = maker,
                None => break,
            }
        }
        Some(origin)
    }

    /// Returns the nodes that are needed for one of these tensors.
    pub(crate) fn needed_for<'b>(&self, tensors: impl IntoIterator<Item = &'b str>) -> HashSet<usize>
    where
        'a: 'b,
    {
        self.0.upstream(tensors, read_names)
    }

    /// Returns the nodes that read the memory of `tensor`, directly or through views.
    pub(crate) fn readers(&self, tensor: &str) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = vec![tensor];
        while let Some(name) = open.pop() {
            for &index in self.0.readers(name) {
                found.push(index);
                let view = self.0.node(index).filter(|node| is_view(node));
                open.extend(
                    view.into_iter()
                        .flat_map(|node| node.output.iter().map(String::as_str)),
                );
            }
        }
        found
    }

    /// Returns true if all readers of `input` run before `output` is written.
    pub(crate) fn is_read_before(&self, input: &str, output: &str) -> bool {
        let needed = self.needed_for([output]);
        self.maker(output).is_some()
            && self
                .readers(input)
                .into_iter()
                .all(|index| needed.contains(&index))
    }

    /// Returns the first outputs of the `live` nodes that read `input` and are not needed for `gradient`.
    pub(crate) fn late(&self, input: &str, gradient: &str, live: &HashSet<usize>) -> Vec<String> {
        let needed = self.needed_for([gradient]);
        let readers = self.readers(input).into_iter();
        let late = readers.filter(|index| live.contains(index) && !needed.contains(index));
        let nodes = late.filter_map(|index| self.0.node(index));
        let read = nodes.filter(|node| !is_view(node));
        read.filter_map(|node| node.output.first().cloned()).collect()
    }
}

/// Returns true if the output can share the memory of the first input.
pub(crate) fn is_view(node: &NodeProto) -> bool {
    node.rearranges() && node.op_type != "Transpose"
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_graph::build::node;

    #[test]
    fn a_reader_behind_a_view_keeps_a_slot_from_being_written_in_place() {
        let mut nodes = vec![
            node("Reshape", &["w", "shape"], &["flat"]),
            node("MatMul", &["x", "w"], &["y"]),
            node("MatMul", &["dy", "flat"], &["dx"]),
            node("Mul", &["y", "rate"], &["gradient"]),
            node("Sub", &["w", "gradient"], &["next"]),
        ];
        let live = HashSet::from([0, 1, 2, 3]);
        let readers = Readers::new(&nodes);
        assert!(!readers.is_read_before("w", "next"));
        assert_eq!(readers.late("w", "gradient", &live), ["dx"]);
        assert!(readers.late("w", "gradient", &HashSet::from([0, 1])).is_empty());
        nodes[3] = node("Sum", &["y", "dx"], &["gradient"]);
        let readers = Readers::new(&nodes);
        assert!(readers.is_read_before("w", "next"));
        assert!(readers.late("w", "gradient", &live).is_empty());
        assert!(!readers.is_read_before("x", "absent"));
    }
}
