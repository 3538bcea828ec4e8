//! Data flow between nodes, used to decide if a step can write the next tensor of a slot in place.

use frostline_graph::onnx::NodeProto;
use std::collections::HashMap;

/// Operators with an output that can share the memory of the first input.
pub(crate) const VIEWS: [&str; 5] = ["Reshape", "Identity", "Flatten", "Squeeze", "Unsqueeze"];

/// Edges between nodes.
pub(crate) struct Readers<'a> {
    nodes: &'a [NodeProto],
    makers: HashMap<&'a str, usize>,
    readers: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Readers<'a> {
    pub(crate) fn new(nodes: &'a [NodeProto]) -> Self {
        let mut makers = HashMap::new();
        let mut readers = HashMap::<&str, Vec<usize>>::new();
        for (index, node) in nodes.iter().enumerate() {
            makers.extend(node.output.iter().map(|name| (name.as_str(), index)));
            for name in &node.input {
                readers.entry(name).or_default().push(index);
            }
        }
        Self {
            nodes,
            makers,
            readers,
        }
    }

    /// Returns the index of the node that computes `tensor`, or `None` for inputs and constants.
    pub(crate) fn maker(&self, tensor: &str) -> Option<usize> {
        self.makers.get(tensor).copied()
    }

    /// Returns the index of the node that computes `tensor`, looking through transposes and views. Returns
    /// `None` for inputs and constants.
    pub(crate) fn origin(&self, tensor: &str) -> Option<usize> {
        let mut origin = self.maker(tensor)?;
        while let Some(node) = self.nodes.get(origin) {
            let rearranges = node.op_type == "Transpose" || VIEWS.contains(&node.op_type.as_str());
            let input = node.input.first().filter(|_| rearranges);
            match input.and_then(|input| self.maker(input)) {
                Some(maker) => origin = maker,
                None => break,
            }
        }
        Some(origin)
    }

    /// Returns a flag for every node that is true if the node is needed for one of these tensors.
    pub(crate) fn needed_for<'b>(&self, tensors: impl IntoIterator<Item = &'b str>) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = tensors.into_iter().filter_map(|name| self.maker(name)).collect();
        while let Some(index) = open.pop() {
            let Some(seen) = needed.get_mut(index).filter(|seen| !**seen) else {
                continue;
            };
            *seen = true;
            let inputs = self.nodes.get(index).map(|node| node.input.iter());
            open.extend(inputs.into_iter().flatten().filter_map(|name| self.maker(name)));
        }
        needed
    }

    /// Returns the nodes that read the memory of `tensor`, directly or through views.
    pub(crate) fn readers(&self, tensor: &str) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = vec![tensor];
        while let Some(name) = open.pop() {
            for &index in self.readers.get(name).into_iter().flatten() {
                found.push(index);
                let node = self.nodes.get(index);
                let view = node.filter(|node| VIEWS.contains(&node.op_type.as_str()));
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
                .all(|index| needed.get(index).copied().unwrap_or_default())
    }

    /// Returns the first outputs of the `live` nodes that read `input` and are not needed for `gradient`.
    pub(crate) fn late(&self, input: &str, gradient: &str, live: &[bool]) -> Vec<String> {
        let needed = self.needed_for([gradient]);
        let readers = self.readers(input).into_iter();
        let late =
            readers.filter(|index| live.get(*index) == Some(&true) && needed.get(*index) != Some(&true));
        let nodes = late.filter_map(|index| self.nodes.get(index));
        let read = nodes.filter(|node| !VIEWS.contains(&node.op_type.as_str()));
        read.filter_map(|node| node.output.first().cloned()).collect()
    }
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
        let live = [true, true, true, true, false];
        let readers = Readers::new(&nodes);
        assert!(!readers.is_read_before("w", "next"));
        assert_eq!(readers.late("w", "gradient", &live), ["dx"]);
        assert!(readers.late("w", "gradient", &[true, true, false]).is_empty());
        nodes[3] = node("Sum", &["y", "dx"], &["gradient"]);
        let readers = Readers::new(&nodes);
        assert!(readers.is_read_before("w", "next"));
        assert!(readers.late("w", "gradient", &live).is_empty());
        assert!(!readers.is_read_before("x", "absent"));
    }
}
