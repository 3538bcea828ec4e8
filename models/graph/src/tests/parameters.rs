//! Trainable weights are found by operator and slot.

use super::support::noisy;
use crate::Model;
use crate::build::{batched, initializer, int, model, node};
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_tensor::Tensor;

/// Returns the parameters of a network from `x [batch, 2, 6]` to `y`.
fn found(nodes: Vec<NodeProto>, weights: &[(&str, &[usize])]) -> Vec<String> {
    let stored = weights
        .iter()
        .map(|(name, dims)| initializer(name, &noisy(3, dims)));
    names(nodes, stored.collect())
}

fn names(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Vec<String> {
    let model = network(node, initializer);
    let parameters = model.parameters().into_iter();
    parameters.map(|weight| weight.name.clone()).collect()
}

fn fixed(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Vec<String> {
    let model = network(node, initializer);
    let fixed = model.fixed_weights().into_iter();
    fixed.map(|weight| weight.name.clone()).collect()
}

fn network(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Model {
    let graph = GraphProto {
        node,
        initializer,
        input: vec![batched("x", &[2, 6])],
        output: vec![batched("y", &[2, 6])],
        ..GraphProto::default()
    };
    Model::from_proto(model(23, graph)).unwrap()
}

#[test]
fn normalizations_train_their_affine_part_and_keep_their_statistics() {
    let row: &[(&str, &[usize])] = &[("s", &[2]), ("b", &[2]), ("m", &[2]), ("v", &[2])];
    let batch = node("BatchNormalization", &["x", "s", "b", "m", "v"], &["y"]);
    assert_eq!(found(vec![batch], row), ["s", "b"]);
    let layer = node("LayerNormalization", &["x", "s", "b"], &["y"]);
    assert_eq!(found(vec![layer], &[("s", &[6]), ("b", &[6])]), ["s", "b"]);
    let group = node("GroupNormalization", &["x", "s", "b"], &["y"]).with([int("num_groups", 1)]);
    assert_eq!(found(vec![group], &[("s", &[2]), ("b", &[2])]), ["s", "b"]);
}

#[test]
fn slopes_and_tables_are_weights() {
    let slopes = node("PRelu", &["x", "slope"], &["y"]);
    assert_eq!(found(vec![slopes.clone()], &[("slope", &[2, 1])]), ["slope"]);
    assert_eq!(found(vec![slopes], &[("slope", &[1])]), ["slope"]);
    let looked_up = vec![
        node("Gather", &["table", "places"], &["row"]),
        node("Add", &["x", "row"], &["y"]),
    ];
    let places = crate::build::integers("places", &[0, 1]);
    let table = initializer("table", &noisy(3, &[4, 6]));
    assert_eq!(names(looked_up, vec![table, places]), ["table"]);
}

#[test]
fn a_single_number_is_a_weight_only_as_a_bias() {
    let nodes = vec![
        node("MatMul", &["x", "w"], &["product"]),
        node("Add", &["product", "bias"], &["shifted"]),
        node("Add", &["shifted", "shift"], &["moved"]),
        node("Mul", &["moved", "factor"], &["y"]),
    ];
    let one: &[usize] = &[1];
    let weights: &[(&str, &[usize])] = &[("w", &[6, 6]), ("bias", one), ("shift", one), ("factor", one)];
    assert_eq!(found(nodes, weights), ["w", "bias"]);
}

#[test]
fn a_weight_is_found_behind_what_rearranges_it_once_and_in_doubles() {
    let nodes = vec![
        node("Identity", &["w"], &["alias"]),
        node("Transpose", &["alias"], &["t"]),
        node("MatMul", &["x", "t"], &["p"]),
        node("MatMul", &["p", "w"], &["q"]),
        node("Clip", &["q", "low", "high"], &["y"]),
    ];
    assert_eq!(
        found(nodes.clone(), &[("w", &[6, 6]), ("low", &[]), ("high", &[])]),
        ["w"]
    );
    let double = TensorProto {
        name: "w".into(),
        data_type: data_type::DOUBLE,
        dims: vec![6, 6],
        double_data: vec![0.5; 36],
        ..TensorProto::default()
    };
    let bounds = ["low", "high"].map(|name| initializer(name, &noisy(3, &[])));
    assert_eq!(names(nodes, [vec![double], bounds.into()].concat()), ["w"]);
}

#[test]
fn masks_and_scales_that_change_nothing_are_constants() {
    let stored = |name: &str, values: Vec<f32>| initializer(name, &Tensor::f32([2, 6], values).unwrap());
    let add = || vec![node("Add", &["x", "table"], &["y"])];
    let mask = (0..12).map(|place| if place % 3 == 0 { -100.0 } else { 0.0 });
    assert!(names(add(), vec![stored("table", mask.collect())]).is_empty());
    assert_eq!(names(add(), vec![stored("table", vec![0.0; 12])]), ["table"]);
    let normalized = |bias: f32| {
        let row = |name: &str, value: f32| initializer(name, &Tensor::f32([2], vec![value; 2]).unwrap());
        let norm = node("InstanceNormalization", &["x", "s", "b"], &["y"]);
        names(vec![norm], vec![row("s", 1.0), row("b", bias)])
    };
    assert!(normalized(0.0).is_empty());
    assert_eq!(normalized(0.5), ["s", "b"]);
}

#[test]
fn weights_behind_casts_and_computations_are_found() {
    let half = |name: &str, dims: &[usize]| {
        let half = crate::tensors::to_float(&noisy(3, dims), frostline_tensor::DType::F16).unwrap();
        initializer(name, &half)
    };
    let single = int("to", data_type::FLOAT.into());
    let cast = vec![
        node("Cast", &["w"], &["wide"]).with([single.clone()]),
        node("MatMul", &["x", "wide"], &["y"]),
    ];
    assert_eq!(names(cast, vec![half("w", &[6, 6])]), ["w"]);
    let temperature = vec![
        node("Exp", &["logits"], &["scale"]),
        node("Mul", &["x", "scale"], &["y"]),
    ];
    assert_eq!(found(temperature, &[("logits", &[2, 1])]), ["logits"]);
    let adapter = vec![
        node("MatMul", &["b", "a"], &["delta"]),
        node("Add", &["w", "delta"], &["sum"]),
        node("MatMul", &["x", "sum"], &["y"]),
    ];
    let factors: &[(&str, &[usize])] = &[("w", &[6, 6]), ("b", &[6, 2]), ("a", &[2, 6])];
    assert_eq!(found(adapter, factors), ["w", "b", "a"]);
}

#[test]
fn fixed_inputs_of_computed_weights_are_no_weights() {
    // The bias of relative positions in Swin V2, from a table of coordinates.
    let positions = vec![
        node("MatMul", &["coordinates", "w1"], &["hidden"]),
        node("Relu", &["hidden"], &["active"]),
        node("MatMul", &["active", "w2"], &["bias"]),
        node("Add", &["x", "bias"], &["y"]),
    ];
    let stored: &[(&str, &[usize])] = &[("coordinates", &[2, 2]), ("w1", &[2, 8]), ("w2", &[8, 6])];
    assert_eq!(found(positions, stored), ["w1", "w2"]);
    // The power iteration of spectral norm.
    let spectral = vec![
        node("MatMul", &["w", "v"], &["wv"]),
        node("MatMul", &["u", "wv"], &["sigma"]),
        node("Div", &["w", "sigma"], &["normal"]),
        node("MatMul", &["x", "normal"], &["y"]),
    ];
    let stored: &[(&str, &[usize])] = &[("w", &[6, 6]), ("v", &[6]), ("u", &[6])];
    assert_eq!(found(spectral, stored), ["w"]);
    // Regions of a shifted window, compared with each other.
    let regions = Tensor::f32([2, 6], (0..12).map(|place| (place / 4) as f32).collect()).unwrap();
    let windows = vec![
        node("Sub", &["regions", "regions"], &["difference"]),
        node("Add", &["x", "difference"], &["y"]),
    ];
    assert!(names(windows, vec![initializer("regions", &regions)]).is_empty());
}

#[test]
fn weights_that_are_not_trained_are_named() {
    let noise = |name: &str, dims: &[usize]| initializer(name, &noisy(3, dims));
    // The operands of a maximum are no slots for weights, also through other nodes.
    let limited = vec![
        node("Max", &["x", "floor"], &["limited"]),
        node("Identity", &["other"], &["same"]),
        node("Max", &["limited", "same"], &["moved"]),
        node("MatMul", &["moved", "w"], &["y"]),
    ];
    let stored = vec![noise("floor", &[6]), noise("other", &[6]), noise("w", &[6, 6])];
    assert_eq!(names(limited.clone(), stored.clone()), ["w"]);
    assert_eq!(fixed(limited, stored), ["floor", "other"]);
    // Statistics, masks and scalars are constants by definition.
    let known = vec![
        node("BatchNormalization", &["x", "s", "b", "m", "v"], &["normal"]),
        node("Add", &["normal", "mask"], &["masked"]),
        node("Mul", &["masked", "half"], &["y"]),
    ];
    let mask = initializer("mask", &Tensor::f32(vec![2, 1], vec![0.0, -100.0]).unwrap());
    let mut stored: Vec<TensorProto> = ["s", "b", "m", "v"]
        .iter()
        .map(|name| noise(name, &[2]))
        .collect();
    stored.extend([mask, noise("half", &[1])]);
    assert_eq!(fixed(known, stored), [""; 0]);
}
