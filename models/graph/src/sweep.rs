//! Finding the single-tensor cuts of a DAG.

use crate::Model;
use crate::analysis::Analysis;
use crate::kinds::reads_shape;
use crate::onnx::NodeProto;
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
    let nodes = analysis.model.nodes().iter().enumerate();
    let nodes: Vec<(usize, &NodeProto)> = nodes.filter(|(index, _)| path.contains(index)).collect();
    let mut last_reader: HashMap<&str, usize> = HashMap::new();
    for &(index, node) in &nodes {
        last_reader.extend(analysis.data_inputs(node).map(|name| (name, index)));
    }
    last_reader.insert(output, usize::MAX);
    let end = first_hidden_shape(analysis);
    let mut live: HashSet<&str> = HashSet::from([input]);
    let mut cuts = Vec::new();
    for (index, node) in nodes.into_iter().filter(|&(index, _)| index <= end) {
        for name in analysis.data_inputs(node) {
            if last_reader.get(name) == Some(&index) {
                live.remove(name);
            }
        }
        let made = node.output.iter().map(String::as_str);
        let made: Vec<&str> = made.filter(|name| last_reader.contains_key(name)).collect();
        live.extend(&made);
        if let (1, Some(&name)) = (live.len(), made.first()) {
            cuts.push((index, name));
        }
    }
    cuts
}

/// The place of the first node whose output has an unknown shape that someone asks for: behind a later cut, that shape could
/// not be computed again.
fn first_hidden_shape(analysis: &Analysis<'_>) -> usize {
    let asked = analysis
        .model
        .nodes()
        .iter()
        .filter(|node| reads_shape(node))
        .flat_map(|node| &node.input);
    let unknown = asked.filter(|name| analysis.kinds.is_data(name) && analysis.probes.dims(name).is_none());
    unknown
        .filter_map(|name| analysis.producer(name))
        .map(|(index, _)| index)
        .min()
        .unwrap_or(usize::MAX)
}

/// Values that an engine fuses into one quantized operator: the input of a `QuantizeLinear`, also in front of an activation function, and its
/// integers. A cut there would compute other numbers than the whole; the cut is the `DequantizeLinear` behind. That of the network's input is
/// no cut either: pixels are smaller.
pub(crate) fn inside_quantization<'a>(model: &'a Model, input: &str) -> HashSet<&'a str> {
    let nodes_of = |operators: &'static [&str]| {
        let nodes = model.nodes().iter();
        nodes.filter(move |node| {
            node.standard_operator()
                .is_some_and(|name| operators.contains(&name))
        })
    };
    let ends = |node: &'a NodeProto| node.input_name(0).zip(node.output_name(0));
    let quantized: HashMap<&str, &str> = nodes_of(&["QuantizeLinear"]).filter_map(ends).collect();
    let mut inside: HashSet<&str> = quantized.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let activations = nodes_of(&["Relu", "Clip"]).filter_map(ends);
    inside.extend(
        activations
            .filter(|(_, to)| quantized.contains_key(to))
            .map(|(from, _)| from),
    );
    let pixels = quantized.get(input);
    let dequantized = nodes_of(&["DequantizeLinear"]).filter_map(ends);
    inside.extend(
        dequantized
            .filter(|(from, _)| Some(from) == pixels)
            .map(|(_, to)| to),
    );
    inside
}
