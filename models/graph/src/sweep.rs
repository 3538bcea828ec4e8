//! Finds the single-tensor cuts of a DAG.

use crate::Model;
use crate::analysis::Analysis;
use crate::kinds::reads_shape;
use crate::onnx::NodeProto;
use std::collections::{HashMap, HashSet};

/// Returns the values through which all data flows from `input` to `output`. The indices are positions of the
/// nodes in the order of execution.
///
/// The search sweeps once over the nodes that carry data to the output. A value is live from the producer to
/// the last reader. If a value is the only live one when it is produced, it separates the nodes before it
/// from the nodes after it. Values computed from shapes only do not count, because they can be computed again
/// after the cut.
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

/// Returns the index of the first node with an output of unknown shape, if a node reads the shape. After a
/// later cut, the shape could not be recomputed.
fn first_hidden_shape(analysis: &Analysis<'_>) -> usize {
    let asked = analysis
        .model
        .nodes()
        .iter()
        .filter(|node| reads_shape(node))
        .flat_map(|node| &node.input);
    let unknown = asked.filter(|name| analysis.kinds.is_data(name) && analysis.probes.dims(name).is_none());
    unknown
        .filter_map(|name| analysis.links.producer(name))
        .map(|(index, _)| index)
        .min()
        .unwrap_or(usize::MAX)
}

/// Returns the first input and output of the nodes with one of these operators.
fn ends_of<'a>(
    model: &'a Model,
    operators: &'static [&'static str],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let nodes = model.nodes().iter().filter(move |node| {
        node.standard_operator()
            .is_some_and(|name| operators.contains(&name))
    });
    nodes.filter_map(|node| node.input_name(0).zip(node.output_name(0)))
}

/// Returns values that an engine fuses into a quantized operator. These are the input and the output of
/// `QuantizeLinear` and the input of an activation function before it. A cut there would give different
/// numbers than the whole network, so the cut is at the output of the `DequantizeLinear`. For the network's
/// input, that output is not a cut either, because pixels are smaller.
pub(crate) fn inside_quantization<'a>(model: &'a Model, input: &str) -> HashSet<&'a str> {
    let quantized: HashMap<&str, &str> = ends_of(model, &["QuantizeLinear"]).collect();
    let mut inside: HashSet<&str> = quantized.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let activations = ends_of(model, &["Relu", "Clip"]);
    inside.extend(
        activations
            .filter(|(_, to)| quantized.contains_key(to))
            .map(|(from, _)| from),
    );
    let pixels = quantized.get(input);
    let dequantized = ends_of(model, &["DequantizeLinear"]);
    inside.extend(
        dequantized
            .filter(|(from, _)| Some(from) == pixels)
            .map(|(_, to)| to),
    );
    inside
}
