//! Cuts are offered only if the samples are known to be independent.

use super::support::noisy;
use crate::Model;
use crate::build::{batched, initializer, int, integers, ints, model, node};
use crate::onnx::{GraphProto, NodeProto, TensorProto};

/// Returns the names of the cuts in a network of `nodes` from `x [batch, 4, 6]` to `y`.
fn cuts(nodes: Vec<NodeProto>, weights: Vec<TensorProto>) -> Vec<String> {
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: vec![batched("x", &[4, 6])],
        output: vec![batched("y", &[4, 6])],
        ..GraphProto::default()
    };
    let model = Model::from_proto(model(17, graph)).unwrap();
    model
        .network()
        .unwrap()
        .cuts
        .into_iter()
        .map(|cut| cut.name)
        .collect()
}

#[test]
fn softmax_over_the_batch_ends_the_cuts() {
    let softmax = |axis| {
        vec![
            node("Relu", &["x"], &["a"]),
            node("Softmax", &["a"], &["b"]).with([int("axis", axis)]),
            node("Relu", &["b"], &["y"]),
        ]
    };
    assert_eq!(cuts(softmax(0), vec![]), ["a"]);
    assert_eq!(cuts(softmax(-3), vec![]), ["a"]);
    assert_eq!(cuts(softmax(1), vec![]), ["a", "b", "y"]);
}

#[test]
fn batch_normalization_counts_only_at_inference() {
    let weights = || {
        ["s", "b", "m", "v"]
            .iter()
            .map(|name| initializer(name, &noisy(1, &[4])))
            .collect::<Vec<_>>()
    };
    let nodes = |training| {
        vec![
            node("BatchNormalization", &["x", "s", "b", "m", "v"], &["a"])
                .with([int("training_mode", training)]),
            node("Relu", &["a"], &["y"]),
        ]
    };
    assert_eq!(cuts(nodes(0), weights()), ["a", "y"]);
    assert!(cuts(nodes(1), weights()).is_empty());
}

#[test]
fn an_unknown_operator_ends_the_cuts() {
    let custom = NodeProto {
        domain: "com.example".into(),
        ..node("Relu", &["a"], &["b"])
    };
    let nodes = vec![node("Relu", &["x"], &["a"]), custom, node("Relu", &["b"], &["y"])];
    assert_eq!(cuts(nodes, vec![]), ["a"]);
}

#[test]
fn samples_joined_by_a_product_or_a_mean_end_the_cuts() {
    let turn = |from, to| node("Transpose", &[from], &[to]).with([ints("perm", &[1, 0, 2])]);
    let turn_back = |from, to| node("Transpose", &[from], &[to]).with([ints("perm", &[0, 2, 1])]);
    // [4, batch, 6] x [4, 6, batch] compares every sample with every other.
    let nodes = vec![
        turn("x", "t"),
        turn_back("t", "u"),
        node("MatMul", &["t", "u"], &["p"]),
        node("MatMul", &["p", "t"], &["m"]),
        turn("m", "y"),
    ];
    assert!(cuts(nodes, vec![]).is_empty());
    let mean = vec![
        node("Relu", &["x"], &["a"]),
        node("ReduceMean", &["a"], &["m"]).with([ints("axes", &[0])]),
        node("Sub", &["a", "m"], &["y"]),
    ];
    assert_eq!(cuts(mean, vec![]), ["a"]);
}

#[test]
fn the_size_of_the_batch_as_a_factor_ends_the_cuts() {
    let weights = vec![integers("first", &[0])];
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Shape", &["x"], &["s"]),
        node("Gather", &["s", "first"], &["n"]),
        node("Cast", &["n"], &["f"]).with([int("to", 1)]),
        node("Div", &["a", "f"], &["b"]),
        node("Relu", &["b"], &["y"]),
    ];
    assert_eq!(cuts(nodes, weights), ["a"]);
}

#[test]
fn a_running_sum_over_the_batch_ends_the_cuts() {
    let summed = |axis| {
        let nodes = vec![
            node("Relu", &["x"], &["a"]),
            node("CumSum", &["a", "axis"], &["b"]),
            node("Relu", &["b"], &["y"]),
        ];
        cuts(nodes, vec![integers("axis", &[axis])])
    };
    assert_eq!(summed(0), ["a"]);
    assert_eq!(summed(-3), ["a"]);
    assert_eq!(summed(-1), ["a", "b", "y"]);
}

#[test]
fn a_weight_repeated_for_each_sample_ends_no_cuts() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Shape", &["x"], &["s"]),
        node("Gather", &["s", "first"], &["n"]),
        node("Concat", &["n", "once"], &["repeats"]).with([int("axis", 0)]),
        node("Tile", &["w", "repeats"], &["t"]),
        node("Add", &["a", "t"], &["y"]),
    ];
    let weights = vec![
        integers("first", &[0]),
        integers("once", &[1, 1]),
        initializer("w", &noisy(1, &[1, 4, 6])),
    ];
    assert_eq!(cuts(nodes, weights), ["a", "y"]);
}

#[test]
fn a_batch_that_is_not_first_is_followed_but_not_cut_at() {
    let nodes = vec![
        node("Transpose", &["x"], &["t"]).with([ints("perm", &[1, 0, 2])]),
        node("Relu", &["t"], &["r"]),
        node("Transpose", &["r"], &["y"]).with([ints("perm", &[1, 0, 2])]),
    ];
    assert_eq!(cuts(nodes, vec![]), ["y"]);
}

#[test]
fn samples_reversed_or_sliced_end_the_cuts() {
    let weights = || {
        vec![
            integers("start", &[-1]),
            integers("end", &[i64::MIN]),
            integers("axis", &[0]),
            integers("step", &[-1]),
        ]
    };
    let reversed = vec![
        node("Relu", &["x"], &["a"]),
        node("Slice", &["a", "start", "end", "axis", "step"], &["b"]),
        node("Relu", &["b"], &["y"]),
    ];
    assert_eq!(cuts(reversed, weights()), ["a"]);
    // Slices the batch from 0 and the second axis from 1. The batch is complete.
    let weights = vec![integers("start", &[0, 1]), integers("end", &[i64::MAX, i64::MAX])];
    let sliced = vec![
        node("Relu", &["x"], &["a"]),
        node("Slice", &["a", "start", "end"], &["y"]),
    ];
    assert_eq!(cuts(sliced, weights), ["a", "y"]);
}

#[test]
fn a_reshape_that_folds_samples_together_ends_the_cuts() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Reshape", &["a", "two"], &["b"]),
        node("Softmax", &["b"], &["c"]).with([int("axis", 1)]),
        node("Reshape", &["c", "back"], &["y"]),
    ];
    let weights = |two: &[i64]| vec![integers("two", two), integers("back", &[-1, 4, 6])];
    assert_eq!(cuts(nodes.clone(), weights(&[1, -1])), ["a"]);
    assert_eq!(cuts(nodes, weights(&[-1, 24])), ["a", "b", "c", "y"]);
}

#[test]
fn a_tensor_that_another_path_passes_by_is_no_cut() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Sigmoid", &["a"], &["b"]),
        node("Tanh", &["a"], &["c"]),
        node("Mul", &["b", "c"], &["d"]),
        // The node reads x again, so a single tensor does not carry all data before this point.
        node("Add", &["d", "x"], &["y"]),
    ];
    assert_eq!(cuts(nodes, vec![]), ["y"]);
}

#[test]
fn lookups_within_a_sample_keep_samples_independent() {
    let long = || int("to", crate::onnx::data_type::INT64.into());
    let elements = |axis| {
        vec![
            node("Cast", &["x"], &["places"]).with([long()]),
            node("GatherElements", &["x", "places"], &["a"]).with([int("axis", axis)]),
            node("Relu", &["a"], &["y"]),
        ]
    };
    assert_eq!(cuts(elements(2), vec![]), ["a", "y"]);
    assert_eq!(cuts(elements(-2), vec![]), ["a", "y"]);
    assert!(cuts(elements(0), vec![]).is_empty());
    let vectors = |shared| {
        vec![
            node("ReduceMax", &["x"], &["most"]).with([ints("axes", &[2])]),
            node("Cast", &["most"], &["places"]).with([long()]),
            node("GatherND", &["x", "places"], &["a"]).with([int("batch_dims", shared)]),
            node("Relu", &["a"], &["y"]),
        ]
    };
    assert_eq!(cuts(vectors(1), vec![]), ["a", "y"]);
    assert!(cuts(vectors(0), vec![]).is_empty());
}
