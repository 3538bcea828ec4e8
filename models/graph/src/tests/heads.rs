//! Replacing heads, merging weights, and freeze cuts after the head.

use super::support::{assert_close, noisy, run, skeleton, squeezenet};
use crate::build::{batched, initializer, int, integers, ints, model, node, tensor};
use crate::onnx::{GraphProto, NodeProto, TensorProto};
use crate::{GraphError, Model};
use frostline_tensor::{DType, Tensor};

/// Network from `x [batch, 6]` to `y [batch, 4]` with `h = Relu(x)`.
fn classifier(tail: Vec<NodeProto>, weights: Vec<TensorProto>, output: &[usize]) -> Model {
    let graph = GraphProto {
        node: std::iter::once(node("Relu", &["x"], &["h"]))
            .chain(tail)
            .collect(),
        initializer: weights,
        input: vec![batched("x", &[6])],
        output: vec![batched("y", output)],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

fn weight(name: &str, dims: &[usize]) -> TensorProto {
    initializer(name, &noisy(11, dims))
}

/// Variants of a head in different exports.
fn heads() -> Vec<(&'static str, Model)> {
    let gemm = |weights: Vec<TensorProto>, inputs: &[&str], transposed| {
        classifier(
            vec![node("Gemm", inputs, &["y"]).with([int("transB", transposed)])],
            weights,
            &[4],
        )
    };
    let product = node("MatMul", &["h", "w"], &["p"]);
    let column = |name: &str| weight(name, &[6, 4]);
    vec![
        (
            "Gemm, features last",
            gemm(vec![weight("w", &[4, 6]), weight("b", &[4])], &["h", "w", "b"], 1),
        ),
        (
            "Gemm, features first",
            gemm(vec![column("w"), weight("b", &[4])], &["h", "w", "b"], 0),
        ),
        ("Gemm without bias", gemm(vec![column("w")], &["h", "w"], 0)),
        (
            "MatMul and Add",
            classifier(
                vec![product.clone(), node("Add", &["b", "p"], &["y"])],
                vec![column("w"), weight("b", &[4])],
                &[4],
            ),
        ),
        (
            "MatMul alone",
            classifier(vec![node("MatMul", &["h", "w"], &["y"])], vec![column("w")], &[4]),
        ),
        (
            "with Softmax",
            classifier(
                vec![
                    product.clone(),
                    node("Add", &["p", "b"], &["q"]),
                    node("Softmax", &["q"], &["y"]),
                ],
                vec![column("w"), weight("b", &[4])],
                &[4],
            ),
        ),
        (
            "with LogSoftmax and a reshape to the number of classes",
            classifier(
                vec![
                    product,
                    node("Add", &["p", "b"], &["q"]),
                    node("LogSoftmax", &["q"], &["r"]),
                    node("Reshape", &["r", "to"], &["y"]),
                ],
                vec![column("w"), weight("b", &[4]), integers("to", &[-1, 4])],
                &[4],
            ),
        ),
        (
            "a transposed weight",
            classifier(
                vec![
                    node("Transpose", &["w"], &["t"]).with([ints("perm", &[1, 0])]),
                    node("MatMul", &["h", "t"], &["p"]),
                    node("Add", &["p", "b"], &["y"]),
                ],
                vec![weight("w", &[4, 6]), weight("b", &[4])],
                &[4],
            ),
        ),
    ]
}

/// Mean of two heads over the same features, like in the distilled networks of DeiT.
fn distilled() -> Model {
    classifier(
        vec![
            node("Gemm", &["h", "w", "b"], &["p"]),
            node("MatMul", &["h", "v"], &["q"]),
            node("Add", &["p", "q"], &["r"]),
            node("Div", &["r", "two"], &["y"]),
        ],
        vec![
            weight("w", &[6, 4]),
            weight("b", &[4]),
            weight("v", &[6, 4]),
            initializer("two", &Tensor::f32([], vec![2.0]).unwrap()),
        ],
        &[4],
    )
}

#[test]
fn probabilities_come_back_behind_a_fresh_head() {
    for (name, model) in heads() {
        let operator = model.probabilities().unwrap();
        assert_eq!(operator.is_some(), name.contains("oftmax"), "{name}");
        let scores = model.replace_head(5, 1).unwrap();
        let Some(operator) = operator else { continue };
        let rows = noisy(3, &[4, 6]);
        let outputs = run(&scores.with_probabilities(&operator).unwrap(), &rows);
        let made = outputs.as_f32().unwrap();
        let scores = run(&scores, &rows);
        for (made, scores) in made.chunks(5).zip(scores.as_f32().unwrap().chunks(5)) {
            let sum: f32 = scores.iter().map(|score| score.exp()).sum();
            for (made, score) in made.iter().zip(scores) {
                let probability = score.exp() / sum;
                let expected = if operator == "Softmax" {
                    probability
                } else {
                    probability.ln()
                };
                assert!(
                    (made - expected).abs() < 1e-5,
                    "{name}: {made} instead of {expected}"
                );
            }
        }
    }
}

#[test]
fn classes_that_are_kept_score_as_before_wherever_they_stand() {
    let rows = noisy(5, &[3, 6]);
    for (name, model) in heads().into_iter().chain([("two heads", distilled())]) {
        let tuned = model.replace_head(4, 9).unwrap();
        let old = run(&tuned, &rows);
        let next = tuned
            .replace_head_keeping(&[Some(3), None, Some(0), Some(2)], 1)
            .unwrap();
        let new = run(&next, &rows);
        let pairs = old
            .as_f32()
            .unwrap()
            .chunks(4)
            .zip(new.as_f32().unwrap().chunks(4));
        for (old, new) in pairs {
            assert_eq!([new[0], new[2], new[3]], [old[3], old[0], old[2]], "{name}");
            assert_ne!(new[1], old[1], "{name}");
        }
        let error = tuned.replace_head_keeping(&[Some(4)], 1).unwrap_err().to_string();
        assert!(error.contains("does not contain class 4"), "{name}: {error}");
    }
}

#[test]
fn both_of_two_heads_are_replaced() {
    let replaced = distilled().replace_head(7, 42).unwrap();
    assert_eq!(run(&replaced, &noisy(5, &[3, 6])).shape().dims(), [3, 7]);
    let network = replaced.network().unwrap();
    assert!(network.cut("h").unwrap().before_head);
    let weights = replaced.head_weights().unwrap();
    let drawn: Vec<_> = weights
        .iter()
        .map(|name| replaced.weight(name).unwrap())
        .collect();
    let dims: Vec<_> = drawn
        .iter()
        .map(|weight| weight.shape().dims().to_vec())
        .collect();
    assert_eq!(dims, [vec![6, 7], vec![7], vec![6, 7], vec![7]]);
    assert_ne!(drawn[0], drawn[2]);
    assert_eq!(replaced.classifier_inputs().unwrap(), ["h", "h"]);
}

#[test]
fn a_classifiers_hidden_values_are_its_inputs() {
    // torchvision's VGG, with a decomposed GELU as the second activation
    let hidden = |features: usize| {
        let nodes = vec![
            node("Gemm", &["h", "w1", "b1"], &["l1"]),
            node("Relu", &["l1"], &["a1"]),
            node("MatMul", &["a1", "w2"], &["p2"]),
            node("Add", &["p2", "b2"], &["l2"]),
            node("Erf", &["l2"], &["e2"]),
            node("Mul", &["e2", "l2"], &["a2"]),
            node("Gemm", &["a2", "w3"], &["y"]),
        ];
        let weights = vec![
            weight("w1", &[6, features]),
            weight("b1", &[features]),
            weight("w2", &[features, 5]),
            weight("b2", &[5]),
            weight("w3", &[5, 4]),
        ];
        classifier(nodes, weights, &[4])
    };
    assert_eq!(hidden(8).classifier_inputs().unwrap(), ["a2", "a1"]);
    for (what, model) in heads() {
        assert_eq!(model.classifier_inputs().unwrap(), ["h"], "{what}");
    }
}

#[test]
fn every_kind_of_head_gets_the_same_weights_from_the_same_seed() {
    let input = noisy(5, &[3, 6]);
    let expected = run(&heads()[0].1.replace_head(7, 42).unwrap(), &input);
    assert_eq!(expected.shape().dims(), [3, 7]);
    for (what, model) in heads() {
        let replaced = model.replace_head(7, 42).unwrap();
        assert_close(&run(&replaced, &input), &expected, what);
        let network = replaced.network().unwrap();
        assert_eq!(network.output.shape.dims(), [7], "{what}");
        assert_eq!(network.head.unwrap().classes, 7, "{what}");
        assert!(
            !replaced
                .nodes()
                .iter()
                .any(|node| node.op_type.ends_with("oftmax")),
            "{what}"
        );
        assert_eq!(replaced.parameters().len(), 2, "{what}");
        assert_ne!(replaced, model.replace_head(7, 43).unwrap(), "{what}");
    }
}

#[test]
fn fresh_weights_are_small_and_the_bias_is_zero() {
    let replaced = heads()[0].1.replace_head(1000, 1).unwrap();
    let tensor = replaced.weight("w").unwrap();
    let values = tensor.as_f32().unwrap();
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    let square = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
    assert!(
        mean.abs() < 0.001 && (square.sqrt() - 0.01).abs() < 0.001,
        "{mean} {square}"
    );
    let again = heads()[0].1.replace_head(1000, 1).unwrap().weight("w").unwrap();
    assert_eq!(again, tensor);
}

#[test]
fn a_freeze_cut_behind_the_head_is_refused() {
    let (_, model) = heads().swap_remove(5);
    let network = model.network().unwrap();
    assert_eq!(network.freeze_cut("h").unwrap().name, "h");
    for cut in ["p", "q", "y"] {
        let error = network.freeze_cut(cut).unwrap_err();
        assert!(
            matches!(&error, GraphError::FreezeAfterHead { last, .. } if last == "`h`"),
            "{error}"
        );
    }
    let error = network.freeze_cut("hh").unwrap_err().to_string();
    assert!(error.contains("no cut `hh`") && error.contains("`h`"), "{error}");
}

#[test]
fn a_network_without_a_head_is_refused_by_name() {
    let model = classifier(vec![node("Sigmoid", &["h"], &["y"])], vec![], &[6]);
    assert!(matches!(model.replace_head(3, 0), Err(GraphError::Head { .. })));
    assert!(matches!(
        model.network().unwrap().freeze_cut("h"),
        Err(GraphError::Head { .. })
    ));
}

#[test]
fn a_network_exported_in_training_mode_says_so() {
    let random = classifier(
        vec![
            node("RandomUniformLike", &["h"], &["drawn"]),
            node("Mul", &["h", "drawn"], &["dropped"]),
            node("Gemm", &["dropped", "w"], &["y"]),
        ],
        vec![weight("w", &[6, 4])],
        &[4],
    );
    let refused = random.replace_head(2, 0).unwrap_err().to_string();
    assert!(
        refused.contains("RandomUniformLike") && refused.contains("model.eval()"),
        "{refused}"
    );
}

#[test]
fn a_weight_that_others_share_is_kept_for_them() {
    let tied = vec![
        node("MatMul", &["h", "w"], &["p"]),
        node("MatMul", &["p", "w"], &["y"]),
    ];
    let model = classifier(tied, vec![weight("w", &[6, 6])], &[6]);
    let replaced = model.replace_head(2, 0).unwrap();
    assert_eq!(replaced.weight("w").unwrap(), model.weight("w").unwrap());
    assert_eq!(run(&replaced, &noisy(5, &[3, 6])).shape().dims(), [3, 2]);
}

#[test]
fn weights_in_constant_nodes_become_initializers() {
    let hidden = noisy(11, &[6, 6]);
    let layers = vec![
        node("Constant", &[], &["v"]).with([tensor("value", &hidden)]),
        node("MatMul", &["h", "v"], &["p"]),
        node("MatMul", &["p", "w"], &["y"]),
    ];
    let model = classifier(layers, vec![weight("w", &[6, 4])], &[4]);
    let replaced = model.replace_head(2, 0).unwrap();
    assert_eq!(replaced.weight("v").unwrap(), hidden);
    assert!(replaced.nodes().iter().all(|node| node.op_type != "Constant"));
    assert_eq!(run(&replaced, &noisy(5, &[3, 6])).shape().dims(), [3, 2]);
}

#[test]
fn trained_weights_come_back_by_name() {
    let (_, model) = heads().swap_remove(0);
    let suffix = model.slice(Some("h"), None).unwrap();
    let trained: Vec<(String, Tensor)> = suffix
        .parameters()
        .into_iter()
        .map(|parameter| {
            let dims: Vec<usize> = parameter.dims.iter().map(|&dim| dim as usize).collect();
            (parameter.name.clone(), noisy(77, &dims))
        })
        .collect();
    let merged = model.merge(&trained).unwrap();
    let input = noisy(5, &[3, 6]);
    let hidden = run(&model.slice(None, Some("h")).unwrap(), &input);
    let expected = run(&suffix.merge(&trained).unwrap(), &hidden);
    assert_close(&run(&merged, &input), &expected, "merged");
    let wrong = vec![("w".to_owned(), noisy(1, &[6, 4]))];
    assert!(matches!(model.merge(&wrong), Err(GraphError::Weight { name, .. }) if name == "w"));
    let missing = vec![("v".to_owned(), noisy(1, &[6, 4]))];
    assert!(matches!(model.merge(&missing), Err(GraphError::Weight { name, .. }) if name == "v"));
}

mod needs_shared {
    use super::*;

    #[test]
    fn squeezenets_head_is_a_convolution() {
        for (file, operator, head_input) in [
            ("squeezenet1_1.onnx", "Conv", None),
            ("squeezenet1_1_pooled.onnx", "Gemm", Some("features")),
        ] {
            let model = squeezenet(file);
            let head = model.network().unwrap().head.unwrap();
            assert_eq!(
                (head.operator.as_str(), head.classes, head.features),
                (operator, 1000, 512)
            );
            assert!(head_input.is_none_or(|name| head.input == name));
            let replaced = model.replace_head(10, 0).unwrap();
            let network = replaced.network().unwrap();
            assert_eq!(network.output.shape.dims(), [10]);
            assert_eq!(
                run(&replaced, &noisy(1, &[2, 3, 224, 224])).shape().dims(),
                [2, 10]
            );
        }
    }

    #[test]
    fn the_networks_of_the_paper_take_other_heads() {
        for name in ["alexnet", "resnet50", "vgg19", "densenet121", "vit_b_16"] {
            for opset in ["opset17", "opset20"] {
                let model = skeleton(&format!("{name}.{opset}"));
                let before = model.network().unwrap();
                let replaced = model.replace_head(3, 9).unwrap();
                let network = replaced.network().unwrap();
                assert_eq!(network.output.shape.dims(), [3]);
                assert_eq!(network.cuts.len(), before.cuts.len());
                assert_eq!(
                    replaced.parameters().len(),
                    model.parameters().len(),
                    "{name}.{opset}"
                );
            }
        }
    }
}

#[test]
fn a_backbone_gets_a_linear_head_on_pooled_features() {
    for (row, features) in [(vec![6], 6), (vec![5, 6], 6), (vec![6, 2, 3], 6)] {
        for opset in [17, 18] {
            let graph = GraphProto {
                node: vec![node("Relu", &["x"], &["y"])],
                input: vec![batched("x", &row)],
                output: vec![batched("y", &row)],
                ..GraphProto::default()
            };
            let backbone = Model::from_proto(model(opset, graph)).unwrap();
            assert!(backbone.replace_head(3, 0).is_err());
            let headed = backbone.with_linear_head().unwrap().replace_head(3, 0).unwrap();
            let network = headed.network().unwrap();
            assert_eq!(
                network.head.as_ref().map(|head| (head.features, head.classes)),
                Some((features, 3))
            );
            assert_eq!(network.output.shape.dims(), [3]);
            let dims = [&[2], row.as_slice()].concat();
            let scores = run(&headed, &noisy(3, &dims));
            assert_eq!(scores.shape().dims(), [2, 3], "{row:?} at {opset}");
        }
    }
}

#[test]
fn a_linear_head_takes_no_scalars_and_no_volumes() {
    let graph = GraphProto {
        node: vec![node("Relu", &["x"], &["y"])],
        input: vec![batched("x", &[2, 3, 4, 5])],
        output: vec![batched("y", &[2, 3, 4, 5])],
        ..GraphProto::default()
    };
    let volumes = Model::from_proto(model(17, graph)).unwrap();
    let error = volumes.with_linear_head().unwrap_err();
    assert!(error.to_string().contains("[2, 3, 4, 5]"), "{error}");
}

#[test]
fn a_head_in_half_precision_keeps_its_type_and_a_quantization_of_scores_is_removed() {
    let half = |name: &str, dims: &[usize]| {
        let half = crate::tensors::to_float(&noisy(11, dims), DType::F16).unwrap();
        initializer(name, &half)
    };
    let cast = |from: &str, to: &str, dtype| {
        node("Cast", &[from], &[to]).with([int("to", crate::tensors::code_of(dtype).into())])
    };
    let tail = vec![
        cast("h", "narrow", DType::F16),
        node("Gemm", &["narrow", "w", "b"], &["scores"]).with([int("transB", 1)]),
        cast("scores", "wide", DType::F32),
        node("QuantizeLinear", &["wide", "scale"], &["q"]),
        node("DequantizeLinear", &["q", "scale"], &["y"]),
    ];
    let scale = initializer("scale", &Tensor::f32([], vec![0.1]).unwrap());
    let model = classifier(tail, vec![half("w", &[4, 6]), half("b", &[4]), scale], &[4]);
    let kept = model.replace_head_keeping(&[Some(2), None], 1).unwrap();
    for name in ["w", "b"] {
        assert_eq!(kept.weight(name).unwrap().dtype(), DType::F16);
    }
    assert!(kept.nodes().iter().all(|node| !node.op_type.contains("Quantize")));
    let row = |model: &Model, class: usize| model.weight("w").unwrap().slice_rows(class, class + 1).unwrap();
    assert_eq!(row(&kept, 0), row(&model, 2));
    assert_eq!(run(&kept, &noisy(5, &[3, 6])).shape().dims(), [3, 2]);
}

#[test]
fn a_head_behind_operators_on_integers_is_refused_by_name() {
    let tail = vec![
        node("DynamicQuantizeLinear", &["h"], &["q", "scale", "zero"]),
        node("MatMulInteger", &["q", "w"], &["products"]),
        node("Cast", &["products"], &["y"]).with([int("to", 1)]),
    ];
    let bytes = TensorProto {
        name: "w".into(),
        data_type: crate::onnx::data_type::UINT8,
        dims: vec![6, 4],
        raw_data: vec![1; 24].into(),
        ..TensorProto::default()
    };
    let model = classifier(tail, vec![bytes], &[4]);
    for error in [
        model.replace_head(3, 0).unwrap_err(),
        model.network().unwrap().cut("q").unwrap_err(),
    ] {
        let error = error.to_string();
        assert!(
            error.contains("operator DynamicQuantizeLinear (node 'q') computes in integers"),
            "{error}"
        );
    }
}
