//! Weights of trained layers become independent of each other and of frozen layers.

use super::support::{assert_close, noisy, run};
use crate::Model;
use crate::build::{batched, initializer, int, model, node};
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_tensor::Tensor;

/// Network from `x [batch, 2, 6]` to `y`.
fn network(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Model {
    let graph = GraphProto {
        node,
        initializer,
        input: vec![batched("x", &[2, 6])],
        output: vec![batched("y", &[2, 6])],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

fn constant(name: &str, dims: &[usize], value: f32) -> TensorProto {
    let count = dims.iter().product();
    initializer(name, &Tensor::f32(dims, vec![value; count]).unwrap())
}

/// Checks that the network computes the same, and returns the names of its weights after `freeze`.
fn trained(model: &Model, freeze: &str) -> (Model, Vec<String>) {
    let owned = model.with_own_weights(freeze).unwrap();
    let input = noisy(5, &[3, 2, 6]);
    assert_close(&run(&owned, &input), &run(model, &input), freeze);
    let suffix = owned.slice(Some(freeze), None).unwrap();
    let names = suffix
        .parameters()
        .into_iter()
        .map(|weight| weight.name.clone())
        .collect();
    (owned, names)
}

#[test]
fn equal_elements_are_copied_for_every_reader_and_tied_weights_are_not() {
    let model = network(
        vec![
            node("Mul", &["x", "ones"], &["a"]),
            node("Mul", &["a", "tied"], &["b"]),
            node("Identity", &["ones"], &["second"]),
            node("Mul", &["b", "second"], &["c"]),
            node("Unsqueeze", &["ones", "axis"], &["wide"]),
            node("Squeeze", &["wide", "axis"], &["narrow"]),
            node("Mul", &["c", "narrow"], &["d"]),
            node("Mul", &["d", "tied"], &["y"]),
        ],
        vec![
            constant("ones", &[6], 1.0),
            initializer("tied", &noisy(3, &[6])),
            crate::build::integers("axis", &[0]),
        ],
    );
    let (owned, names) = trained(&model, "x");
    assert_eq!(names, ["ones", "tied", "second", "ones.2"]);
    assert!(owned.nodes().iter().all(|node| node.op_type != "Identity"));
}

#[test]
fn statistics_with_equal_elements_are_copied() {
    let norm = |from: &str, to: &str| node("BatchNormalization", &[from, "s", "b", "zeros", "s"], &[to]);
    let stored = vec![
        constant("s", &[2], 1.0),
        constant("b", &[2], 0.0),
        constant("zeros", &[2], 0.0),
    ];
    let model = network(vec![norm("x", "h"), norm("h", "y")], stored);
    let (owned, names) = trained(&model, "x");
    assert_eq!(names.len(), 4);
    let mut read: Vec<&String> = owned.nodes().iter().flat_map(|node| &node.input).collect();
    read.sort_unstable();
    read.dedup();
    assert_eq!(read.len(), 10, "{read:?}");
}

#[test]
fn weights_of_frozen_layers_do_not_change_with_the_trained_ones() {
    let nodes = vec![
        node("Transpose", &["w"], &["t"]),
        node("MatMul", &["x", "t"], &["a"]),
        node("MatMul", &["a", "w"], &["h"]),
        node("MatMul", &["h", "t"], &["b"]),
        node("MatMul", &["b", "w"], &["y"]),
    ];
    let model = network(nodes, vec![initializer("w", &noisy(3, &[6, 6]))]);
    let (owned, names) = trained(&model, "h");
    assert_eq!(names, ["w.2"]);
    let prefix = |model: &Model| model.slice(None, Some("h")).unwrap();
    assert_eq!(prefix(&owned), prefix(&model));
    let changed = owned.merge(&[("w.2".to_owned(), noisy(9, &[6, 6]))]).unwrap();
    assert_eq!(prefix(&changed), prefix(&model));
}

#[test]
fn integers_become_weights_after_the_freeze_cut() {
    let bytes = |name: &str| TensorProto {
        name: name.into(),
        data_type: data_type::INT8,
        dims: vec![6, 6],
        raw_data: (0..36_u8)
            .map(|value| value.wrapping_mul(37))
            .collect::<Vec<u8>>()
            .into(),
        ..TensorProto::default()
    };
    let dequantize =
        |from: &str, to: &str| node("DequantizeLinear", &[from, "scales"], &[to]).with([int("axis", 1)]);
    let nodes = vec![
        dequantize("frozen", "f"),
        dequantize("stored", "w"),
        node("MatMul", &["x", "f"], &["h"]),
        node("MatMul", &["h", "w"], &["y"]),
    ];
    let scales = Tensor::f32([6], vec![0.01, 0.02, 0.03, 0.04, 0.05, 0.06]).unwrap();
    let model = network(
        nodes,
        vec![bytes("frozen"), bytes("stored"), initializer("scales", &scales)],
    );
    let owned = model.with_own_weights("h").unwrap();
    let weight = owned.weight("w").unwrap();
    for (place, value) in weight.as_f32().unwrap().iter().enumerate() {
        let stored = f32::from((place as u8).wrapping_mul(37).cast_signed());
        let expected = stored * 0.01 * (place % 6 + 1) as f32;
        assert!((value - expected).abs() < 1e-5, "{place}: {value}, {expected}");
    }
    assert_eq!(owned.slice(Some("h"), None).unwrap().parameters().len(), 1);
    assert_eq!(
        owned
            .nodes()
            .iter()
            .filter(|node| node.op_type == "DequantizeLinear")
            .count(),
        1
    );
    assert_eq!(owned.initializer("stored"), None);
}
