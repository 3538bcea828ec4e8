//! Conversion of a network to f16.

use anyhow::Result;
use frostline_graph::Model;
use frostline_graph::build::{initializer, int, node};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto, ValueInfo, data_type};
use frostline_graph::tensors::from_proto;
use frostline_tensor::{Data, Tensor};
use half::f16;
use std::collections::{HashMap, HashSet};

/// Converts all f32 values of `model` to f16. Inputs and outputs remain f32, with a `Cast` after each input
/// and before each output.
///
/// Values beyond 65,504 become infinite because f16 cannot represent them.
pub(super) fn to_f16(model: &Model) -> Result<Model> {
    let graph = model.graph();
    let read_in_f32 = f32_operands(graph);
    let mut rewrite = Rewrite {
        renamed: HashMap::new(),
        nodes: Vec::with_capacity(graph.node.len() + 2),
        weights: Vec::with_capacity(graph.initializer.len()),
    };
    for weight in &graph.initializer {
        rewrite.add_weight(weight, read_in_f32.contains(weight.name.as_str()))?;
    }
    for input in model.inputs().filter(|input| is_f32(input)) {
        let half = format!("{}/f16", input.name);
        rewrite.cast(&input.name, &half, data_type::FLOAT16);
        rewrite.renamed.insert(input.name.clone(), half);
    }
    let outputs = graph.output.iter().filter(|output| is_f32(output));
    let outputs: HashSet<&str> = outputs.map(|output| output.name.as_str()).collect();
    for original in &graph.node {
        let stays = original
            .output
            .iter()
            .any(|name| read_in_f32.contains(name.as_str()));
        match stays {
            true => rewrite.nodes.push(original.clone()),
            false => rewrite.add_node(original, &outputs)?,
        }
    }
    Ok(model.with_graph(GraphProto {
        node: rewrite.nodes,
        initializer: rewrite.weights,
        value_info: Vec::new(),
        ..graph.clone()
    })?)
}

fn is_f32(value: &ValueInfo) -> bool {
    value
        .tensor()
        .is_some_and(|tensor| tensor.elem_type == data_type::FLOAT)
}

/// Operands that remain f32 in an f16 network (`scales` of `Resize`).
fn f32_operands(graph: &GraphProto) -> HashSet<&str> {
    let resizes = graph.node.iter().filter(|node| node.op_type == "Resize");
    resizes
        .filter_map(|node| node.input.get(2))
        .map(String::as_str)
        .collect()
}

/// The converted graph under construction.
struct Rewrite {
    /// Maps names of f32 values to the names of the f16 copies.
    renamed: HashMap<String, String>,
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
}

impl Rewrite {
    fn add_weight(&mut self, weight: &TensorProto, stays: bool) -> Result<()> {
        let half = if stays { None } else { in_f16(weight)? };
        self.weights.push(half.unwrap_or_else(|| weight.clone()));
        Ok(())
    }

    fn cast(&mut self, from: &str, to: &str, code: i32) {
        let cast = node("Cast", &[from], &[to]).named(&format!("{from} to {to}"));
        self.nodes.push(cast.with([int("to", code.into())]));
    }

    fn add_node(&mut self, original: &NodeProto, outputs: &HashSet<&str>) -> Result<()> {
        let mut made = original.clone();
        for name in &mut made.input {
            if let Some(half) = self.renamed.get(name.as_str()) {
                name.clone_from(half);
            }
        }
        for attribute in &mut made.attribute {
            if made.op_type == "Cast" && attribute.name == "to" && attribute.i == i64::from(data_type::FLOAT)
            {
                attribute.i = data_type::FLOAT16.into();
            }
            if let Some(tensor) = &attribute.t
                && let Some(half) = in_f16(tensor)?
            {
                attribute.t = Some(half);
            }
        }
        let exported: Vec<String> = made
            .output
            .iter()
            .filter(|name| outputs.contains(name.as_str()))
            .cloned()
            .collect();
        for name in &mut made.output {
            if outputs.contains(name.as_str()) {
                let half = format!("{name}/f16");
                self.renamed.insert(name.clone(), half.clone());
                *name = half;
            }
        }
        self.nodes.push(made);
        for name in exported {
            self.cast(&format!("{name}/f16"), &name, data_type::FLOAT);
        }
        Ok(())
    }
}

/// Converts an f32 tensor to f16. Returns `None` for other types.
fn in_f16(tensor: &TensorProto) -> Result<Option<TensorProto>> {
    if tensor.data_type != data_type::FLOAT {
        return Ok(None);
    }
    let exact = from_proto(tensor)?;
    let Data::F32(values) = exact.data() else {
        return Ok(None);
    };
    let halves = values.iter().map(|value| f16::from_f32(*value)).collect();
    let half = Tensor::new(exact.shape().dims().to_vec(), Data::F16(halves))?;
    Ok(Some(initializer(&tensor.name, &half)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_engine::{Session, SessionOptions};
    use frostline_graph::build::{batched, model};

    fn run(model: &Model, rows: &Tensor) -> Vec<f32> {
        let mut session = Session::open(&model.to_bytes().unwrap(), &SessionOptions::default()).unwrap();
        let outputs = session.run(&[("x", rows)]).unwrap();
        outputs[0].1.as_f32().unwrap().to_vec()
    }

    #[test]
    fn a_network_in_f16_takes_and_returns_f32_and_agrees() {
        let weights = (0..12).map(|index| 0.1 + index as f32 / 7.0).collect();
        let graph = GraphProto {
            name: "linear".to_owned(),
            node: vec![
                node("MatMul", &["x", "w"], &["product"]),
                node("Relu", &["product"], &["y"]),
            ],
            initializer: vec![initializer("w", &Tensor::f32([4, 3], weights).unwrap())],
            input: vec![batched("x", &[4])],
            output: vec![batched("y", &[3])],
            ..GraphProto::default()
        };
        let exact = Model::from_proto(model(17, graph)).unwrap();
        let half = to_f16(&exact).unwrap();
        assert!(
            half.graph()
                .initializer
                .iter()
                .all(|weight| weight.data_type == data_type::FLOAT16)
        );
        let rows = Tensor::f32([1, 4], vec![0.3, 1.1, 2.7, -0.9]).unwrap();
        let (expected, found) = (run(&exact, &rows), run(&half, &rows));
        assert_ne!(expected, found, "nothing was rounded");
        for (expected, found) in expected.iter().zip(found) {
            assert!((expected - found).abs() < 1e-2, "{expected} {found}");
        }
    }
}
