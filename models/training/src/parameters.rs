use frostline_graph::Model;
use frostline_graph::onnx::{NodeProto, TensorProto, data_type};
use std::collections::HashMap;

/// Which initialisers of a suffix are its weights, in order of first use.
///
/// Chosen by operator and input slot, because not every stored float tensor is a weight: means and variances, bounds,
/// and constants are not.
pub(crate) fn trainable(suffix: &Model) -> Vec<&TensorProto> {
    let stored = suffix.initializers();
    let producers: HashMap<&str, &NodeProto> = suffix
        .nodes()
        .iter()
        .flat_map(|node| node.output.iter().map(move |name| (name.as_str(), node)))
        .collect();
    let mut chosen: Vec<&TensorProto> = Vec::new();
    for node in suffix.nodes() {
        let named = slots(node).iter().filter_map(|slot| node.input_name(*slot));
        for name in named {
            let Some(&tensor) = stored.get(origin(name, &producers)) else {
                continue;
            };
            let known = chosen.iter().any(|other| other.name == tensor.name);
            if !known && is_float(tensor) && (is_weighty(node) || elements(tensor) > 1) {
                chosen.push(tensor);
            }
        }
    }
    chosen
}

/// Whether some Conv takes `name` as its weight.
pub(crate) fn is_convolved(suffix: &Model, name: &str) -> bool {
    suffix
        .nodes()
        .iter()
        .any(|node| node.standard_operator() == Some("Conv") && node.input_name(1) == Some(name))
}

/// The input slots in which an operator takes weights.
fn slots(node: &NodeProto) -> &'static [usize] {
    match node.standard_operator() {
        Some("Conv" | "BatchNormalization") => &[1, 2],
        Some("Gemm") => &[0, 1, 2],
        Some("MatMul" | "Add" | "Mul") => &[0, 1],
        _ => &[],
    }
}

/// Whether whatever is stored in the node's slots is a weight. A single number in an Add or Mul is a constant.
fn is_weighty(node: &NodeProto) -> bool {
    !matches!(node.standard_operator(), Some("Add" | "Mul"))
}

/// Follows `name` back through nodes that only move elements: exporters store a weight once and transpose or alias it.
fn origin<'a>(name: &'a str, producers: &HashMap<&'a str, &'a NodeProto>) -> &'a str {
    let mut name = name;
    while let Some(node) = producers.get(name) {
        let moves = matches!(
            node.standard_operator(),
            Some("Identity" | "Transpose" | "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze")
        );
        match node.input_name(0).filter(|_| moves) {
            Some(input) => name = input,
            None => break,
        }
    }
    name
}

fn is_float(tensor: &TensorProto) -> bool {
    matches!(tensor.data_type, data_type::FLOAT | data_type::DOUBLE)
}

fn elements(tensor: &TensorProto) -> i64 {
    tensor.dims.iter().product()
}
