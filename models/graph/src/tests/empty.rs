//! Axes of size 0, which are refused before a kernel runs.

use super::admission::{admit, in_graph, refused};
use crate::Inadmissible;
use crate::build::{batched, initializer, int, integers, model, node};
use crate::onnx::{GraphProto, ModelProto, NodeProto, TensorProto};
use frostline_tensor::Tensor;

/// Network with `nodes` between `x` and `y`, on rows of four numbers.
fn between(nodes: Vec<NodeProto>, weights: Vec<TensorProto>) -> ModelProto {
    let graph = GraphProto {
        node: nodes,
        initializer: [weights, vec![integers("zero", &[0]), integers("one", &[1])]].concat(),
        input: vec![batched("x", &[4])],
        output: vec![batched("y", &[4])],
        ..GraphProto::default()
    };
    model(17, graph)
}

/// Without input elements, some kernels of ONNX Runtime do not write the output or do not terminate.
#[test]
fn computing_with_axes_of_size_zero_is_refused() {
    let no_rows = initializer("none", &Tensor::f32(vec![1, 0, 4], vec![]).unwrap());
    let unwritten = vec![
        node("Slice", &["x", "zero", "zero", "one"], &["left"]),
        node("Unsqueeze", &["left", "one"], &["batched"]),
        node("MatMul", &["batched", "none"], &["product"]),
        node("Squeeze", &["product", "one"], &["y"]),
    ];
    let refusal = refused(
        &between(unwritten, vec![no_rows]),
        &["`left`", "Slice", "axis of size 0"],
    );
    assert!(matches!(refusal, Inadmissible::EmptyAxis { .. }));
    let endless = in_graph(|graph| {
        let none = node("Slice", &["x", "zero", "zero", "one"], &["none"]);
        graph.node[0].input[0] = "none".to_owned();
        graph.node.insert(0, none);
        graph.initializer[0] = initializer("k", &Tensor::f32(vec![2, 0, 3, 3], vec![]).unwrap());
        graph
            .initializer
            .extend([integers("zero", &[0]), integers("one", &[1])]);
    });
    refused(&endless, &["`none`", "Slice", "axis of size 0"]);
    let dot = vec![
        node("MatMul", &["empty", "empty"], &["product"]),
        node("Add", &["x", "product"], &["y"]),
    ];
    let empty = initializer("empty", &Tensor::f32(vec![0], vec![]).unwrap());
    refused(
        &between(dot, vec![empty]),
        &["MatMul", "`empty`", "axis of size 0"],
    );
    // An empty list of sizes is valid and creates a scalar.
    let scalar = vec![
        node("ConstantOfShape", &["sizes"], &["number"]),
        node("Add", &["x", "number"], &["y"]),
    ];
    admit(&between(scalar, vec![integers("sizes", &[])])).unwrap();
}

/// The axis is not empty for large batches, but has the size 0 for a small batch.
#[test]
fn axes_that_are_empty_for_a_batch_are_refused() {
    let shorter = |by: i64| {
        let nodes = vec![
            node("Shape", &["x"], &["shape"]),
            node("Gather", &["shape", "zero"], &["rows"]).with([int("axis", 0)]),
            node("Sub", &["rows", "by"], &["fewer"]),
            node("ConstantOfShape", &["fewer"], &["zeros"]),
            node("ReduceSum", &["zeros"], &["sum"]),
            node("Add", &["x", "sum"], &["y"]),
        ];
        between(nodes, vec![integers("by", &[by])])
    };
    refused(
        &shorter(1),
        &["ConstantOfShape", "does not grow linearly with the batch"],
    );
    admit(&shorter(0)).unwrap();
}
