//! Networks with a fixed batch of 1.

use super::support::{assert_close, filled, noisy, run, skeleton};
use crate::build::{Axis, batched, initializer, int, integers, ints, model, node, value};
use crate::onnx::{DimensionValue, GraphProto, NodeProto, TensorProto, data_type};
use crate::{GraphError, Model};
use frostline_tensor::Tensor;
use prost::Message;

/// Network with the input `x [batch, 4, 6]`.
fn fixed(batch: usize, nodes: Vec<NodeProto>, weights: Vec<TensorProto>, output: &[usize]) -> Model {
    let axes = |dims: &[usize]| -> Vec<Axis> { dims.iter().map(|&dim| Axis::Fixed(dim)).collect() };
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: vec![value("x", data_type::FLOAT, &axes(&[batch, 4, 6]))],
        output: vec![value("y", data_type::FLOAT, &axes(output))],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

fn opened(model: &Model) -> Result<Model, GraphError> {
    Model::from_bytes(model.to_bytes().unwrap().into())
}

/// Asserts that the opened network computes the same for a batch of three samples as the fixed network for
/// single samples.
fn assert_opens(model: &Model) {
    let opened = opened(model).unwrap();
    let input = noisy(2, &[3, 4, 6]);
    let singles: Vec<Tensor> = (0..3)
        .map(|row| run(model, &input.slice_rows(row, row + 1).unwrap()))
        .collect();
    let expected = Tensor::concat_rows(&singles).unwrap();
    assert_close(&run(&opened, &input), &expected, "opened");
    assert_eq!(
        opened.network().unwrap().output.shape.batched(3),
        *expected.shape()
    );
}

#[test]
fn reshape_targets_are_opened() {
    let weights = vec![initializer("w", &noisy(1, &[24, 5])), integers("flat", &[1, 24])];
    let nodes = vec![
        node("Reshape", &["x", "flat"], &["f"]),
        node("MatMul", &["f", "w"], &["y"]),
    ];
    assert_opens(&fixed(1, nodes.clone(), weights.clone(), &[1, 5]));
    let weights = vec![weights[0].clone(), integers("flat", &[1, -1])];
    assert_opens(&fixed(1, nodes, weights, &[1, 5]));
}

#[test]
fn attention_over_spelled_out_shapes_is_opened() {
    // [1, 4, 6] -> [4, 1, 6] -> [4, 1 * 2, 3] -> [2, 4, 3], scores, and back.
    let nodes = vec![
        node("Transpose", &["x"], &["t"]).with([ints("perm", &[1, 0, 2])]),
        node("Reshape", &["t", "heads"], &["h"]),
        node("Transpose", &["h"], &["q"]).with([ints("perm", &[1, 0, 2])]),
        node("Transpose", &["h"], &["k"]).with([ints("perm", &[1, 2, 0])]),
        node("MatMul", &["q", "k"], &["s"]),
        node("Softmax", &["s"], &["p"]).with([int("axis", -1)]),
        node("MatMul", &["p", "q"], &["m"]),
        node("Transpose", &["m"], &["b"]).with([ints("perm", &[1, 0, 2])]),
        node("Reshape", &["b", "joined"], &["j"]),
        node("Transpose", &["j"], &["y"]).with([ints("perm", &[1, 0, 2])]),
    ];
    let weights = vec![integers("heads", &[4, 2, 3]), integers("joined", &[4, 1, 6])];
    assert_opens(&fixed(1, nodes, weights, &[1, 4, 6]));
}

#[test]
fn a_class_token_is_repeated_for_every_sample() {
    let nodes = vec![
        node("Concat", &["token", "x"], &["c"]).with([int("axis", 1)]),
        node("Relu", &["c"], &["y"]),
    ];
    let weights = vec![initializer("token", &noisy(4, &[1, 1, 6]))];
    assert_opens(&fixed(1, nodes, weights, &[1, 5, 6]));
}

#[test]
fn batches_that_cannot_be_opened_are_refused_by_name() {
    let larger = fixed(8, vec![node("Relu", &["x"], &["y"])], vec![], &[8, 4, 6]);
    let error = opened(&larger).unwrap_err();
    assert!(
        matches!(error, GraphError::FixedBatch { batch: 8, .. }),
        "{error}"
    );
    let mixing = fixed(
        1,
        vec![
            node("Softmax", &["x"], &["s"]).with([int("axis", 0)]),
            node("Relu", &["s"], &["y"]),
        ],
        vec![],
        &[1, 4, 6],
    );
    let error = opened(&mixing).unwrap_err().to_string();
    assert!(
        error.contains("batch of 1") && error.contains("`s` (Softmax)"),
        "{error}"
    );
    let custom = NodeProto {
        domain: "com.example".into(),
        ..node("Fancy", &["x"], &["y"])
    };
    let error = opened(&fixed(1, vec![custom], vec![], &[1, 4, 6]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("`y` (Fancy)"), "{error}");
}

#[test]
fn open_axes_behind_the_batch_are_refused() {
    let mut proto = fixed(1, vec![node("Relu", &["x"], &["y"])], vec![], &[1, 4, 6]).into_proto();
    let input = &mut proto.graph.as_mut().unwrap().input[0];
    let shape = input
        .r#type
        .as_mut()
        .unwrap()
        .tensor_type
        .as_mut()
        .unwrap()
        .shape
        .as_mut()
        .unwrap();
    shape.dim[2].value = Some(DimensionValue::DimParam("width".into()));
    let error = Model::from_bytes(proto.encode_to_vec().into())
        .unwrap_err()
        .to_string();
    assert!(error.contains("axis 2 is `width`"), "{error}");
}

/// Fixes the batch of a network to 1 like an exporter, with constant reshape targets.
fn baked(model: &Model) -> Model {
    let shapes = model.shapes(1).unwrap();
    let mut graph = model.graph().clone();
    let mut targets = Vec::new();
    for node in graph.node.iter_mut().filter(|node| node.op_type == "Reshape") {
        let dims = shapes.dims(&node.output[0]).unwrap();
        let name = format!("{}/baked", node.output[0]);
        targets.push(integers(
            &name,
            &dims.iter().map(|&dim| dim as i64).collect::<Vec<_>>(),
        ));
        node.input[1] = name;
    }
    // The expanded class token of a single sample is the token.
    for node in graph.node.iter_mut().filter(|node| node.op_type == "Expand") {
        *node = crate::build::node("Identity", &[&node.input[0]], &[&node.output[0]]);
    }
    graph.initializer.extend(targets);
    let row = model.network().unwrap().input.shape.dims().to_vec();
    let axes: Vec<Axis> = [1].into_iter().chain(row).map(Axis::Fixed).collect();
    graph.input = vec![value(&graph.input[0].name, data_type::FLOAT, &axes)];
    model.with_graph(graph).unwrap()
}

mod needs_shared {
    use super::*;

    #[test]
    fn a_baked_vision_transformer_opens_to_the_dynamic_one() {
        for opset in ["opset17", "opset20"] {
            let model = skeleton(&format!("vit_b_16.{opset}"));
            let opened = crate::rebatch::open_batch(&baked(&model)).unwrap();
            let names = |model: &Model| {
                model
                    .network()
                    .unwrap()
                    .cuts
                    .into_iter()
                    .map(|cut| cut.name)
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(&opened), names(&model), "{opset}");
        }
    }

    #[test]
    fn a_baked_resnet_gives_the_same_scores() {
        let model = skeleton("resnet18.opset20");
        let model = filled(&model);
        let opened = crate::rebatch::open_batch(&baked(&model)).unwrap();
        let input = noisy(2, &[2, 3, 224, 224]);
        assert_close(&run(&opened, &input), &run(&model, &input), "opened");
        assert_eq!(opened.outputs()[0].r#type, batched("output", &[1000]).r#type);
    }
}
