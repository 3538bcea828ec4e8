//! Small networks in f16, executed by ONNX Runtime on the CPU and compared with `f32`.

use super::network::{network, run, tensor};
use crate::{Calibration, Scheme, WeightBits, cosine, for_precision, quantize, to_f16};
use frostline_graph::Model;
use frostline_graph::build::{batched, float, initializer, int, integers, ints, model, node, value};
use frostline_graph::onnx::{
    AttributeProto, AttributeType, GraphProto, NodeProto, TensorProto, ValueInfo, data_type,
};
use frostline_tensor::{Precision, Tensor};

fn scalar(name: &str, value: f32) -> TensorProto {
    initializer(name, &Tensor::f32(Vec::new(), vec![value]).unwrap())
}

/// Builds a network from `x` to `y`, both with rows of four elements.
fn of(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Model {
    with_output(node, initializer, batched("y", &[4]))
}

fn with_output(node: Vec<NodeProto>, initializer: Vec<TensorProto>, output: ValueInfo) -> Model {
    let graph = GraphProto {
        name: "part".to_owned(),
        node,
        initializer,
        input: vec![batched("x", &[4])],
        output: vec![output],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

fn square(name: &str) -> TensorProto {
    initializer(name, &tensor(5, &[4, 4]))
}

/// Operators with the names of their inputs, in order.
fn written(model: &Model) -> Vec<String> {
    let shown = |node: &NodeProto| format!("{}({})", node.op_type, node.input.join(", "));
    model.nodes().iter().map(shown).collect()
}

fn type_of(model: &Model, weight: &str) -> Option<i32> {
    model.initializer(weight).map(|weight| weight.data_type)
}

/// Runs both forms of a network on the same rows and compares all elements.
#[track_caller]
fn assert_close(exact: &Model, half: &Model, rows: &Tensor, tolerance: f32) {
    let expected = run(exact, rows);
    let found = run(half, rows);
    for ((name, expected), (_, found)) in expected.iter().zip(&found) {
        let expected = expected.as_f32().unwrap();
        let found = found.as_f32().unwrap();
        assert_eq!(expected.len(), found.len(), "{name}");
        for (expected, found) in expected.iter().zip(found) {
            let limit = tolerance * expected.abs().max(1.0);
            assert!((expected - found).abs() <= limit, "{name}: {expected} {found}");
        }
    }
}

#[test]
fn weights_and_activations_are_f16_and_the_ends_f32() {
    let exact = network(17);
    let rows = tensor(13, &[3, 3, 8, 8]);
    let exact = exact.slice(None, Some("features")).unwrap();
    let half = to_f16(&exact).unwrap();
    let ends = |model: &Model| (model.graph().input.clone(), model.graph().output.clone());
    assert_eq!(ends(&half), ends(&exact));
    let floats = |model: &Model| {
        let weights = model.graph().initializer.iter();
        weights
            .filter(|weight| weight.data_type == data_type::FLOAT)
            .count()
    };
    assert_eq!(floats(&half), 0, "{:?}", half.initializers().keys());
    // One cast at the input. The mean over an axis is computed in f32, so the output needs none.
    let casts = half.nodes().iter().filter(|node| node.op_type == "Cast").count();
    assert_eq!(casts, 2, "{:?}", written(&half));
    let similarity = cosine(&run(&exact, &rows)[0].1, &run(&half, &rows)[0].1);
    assert!(similarity > 0.999_9 && similarity < 1.0, "{similarity}");
    assert_eq!(to_f16(&half).unwrap(), half, "a network in f16 changed");
}

#[test]
fn only_f16_changes_a_network() {
    let exact = network(17);
    for precision in [Precision::Full, Precision::Tf32] {
        assert_eq!(for_precision(exact.clone(), precision).unwrap(), exact);
    }
    let half = for_precision(exact.clone(), Precision::F16).unwrap();
    assert_eq!(half, to_f16(&exact).unwrap());
    assert_ne!(half, exact);
}

#[test]
fn a_decomposed_normalization_is_in_f32_with_one_cast_at_each_edge() {
    let axes = || [ints("axes", &[-1])];
    let exact = of(
        vec![
            node("MatMul", &["x", "w1"], &["h"]),
            node("ReduceMean", &["h"], &["mean"]).with(axes()),
            node("Sub", &["h", "mean"], &["centered"]),
            node("Pow", &["centered", "two"], &["squares"]),
            node("ReduceMean", &["squares"], &["variance"]).with(axes()),
            node("Add", &["variance", "epsilon"], &["shifted"]),
            node("Sqrt", &["shifted"], &["deviation"]),
            node("Div", &["centered", "deviation"], &["normal"]),
            node("Mul", &["normal", "gamma"], &["scaled"]),
            node("MatMul", &["scaled", "w2"], &["branch"]),
            node("Add", &["h", "branch"], &["y"]),
        ],
        vec![
            square("w1"),
            square("w2"),
            scalar("two", 2.0),
            scalar("epsilon", 1e-12),
            initializer("gamma", &tensor(6, &[4])),
        ],
    );
    let half = to_f16(&exact).unwrap();
    let casts = half.nodes().iter().filter(|node| node.op_type == "Cast");
    let casts: Vec<&str> = casts.map(|node| node.input[0].as_str()).collect();
    assert_eq!(casts, ["x", "h/f16", "scaled", "y/f16"]);
    assert_eq!(type_of(&half, "gamma"), Some(data_type::FLOAT));
    assert_eq!(type_of(&half, "w1/f16"), Some(data_type::FLOAT16));
    assert_eq!(type_of(&half, "w1"), None);
    // The variance of these rows is zero in f16.
    let rows = Tensor::f32(
        [2, 4],
        tensor(7, &[8])
            .as_f32()
            .unwrap()
            .iter()
            .map(|x| x * 1e-4)
            .collect(),
    );
    assert_close(&exact, &half, &rows.unwrap(), 2e-3);
}

#[test]
fn masks_are_clamped_and_large_factors_stay_in_f32() {
    let mask = Tensor::f32([1, 4], vec![0.0, f32::MIN, 0.0, -f32::MAX]).unwrap();
    let exact = of(
        vec![
            node("MatMul", &["x", "w"], &["scores"]),
            node("Add", &["scores", "mask"], &["masked"]),
            node("Softmax", &["masked"], &["weights"]),
            node("Mul", &["weights", "factor"], &["y"]),
        ],
        vec![
            square("w"),
            initializer("mask", &mask),
            scalar("factor", 70_000.0),
        ],
    );
    let half = to_f16(&exact).unwrap();
    let clamped = half.weight("mask/f16").unwrap();
    assert_eq!(clamped.describe(), "f16[1, 4]");
    let numbers = frostline_graph::tensors::numbers(clamped.data()).unwrap();
    assert_eq!(numbers, [0.0, -65504.0, 0.0, -65504.0]);
    assert_eq!(written(&half).last().unwrap(), "Mul(weights, factor)");
    assert_close(&exact, &half, &tensor(8, &[3, 4]), 2e-3);
}

#[test]
fn computed_masks_are_clamped_too() {
    let exact = of(
        vec![
            node("Constant", &[], &["low"]).with([float("value_float", f32::MIN)]),
            node("Where", &["seen", "zero", "low"], &["mask"]),
            node("MatMul", &["x", "w"], &["scores"]),
            node("Add", &["scores", "mask"], &["masked"]),
            node("Identity", &["masked"], &["y"]),
        ],
        vec![
            square("w"),
            scalar("zero", 0.0),
            TensorProto {
                name: "seen".to_owned(),
                data_type: data_type::BOOL,
                dims: vec![1, 4],
                raw_data: vec![1, 0, 1, 1].into(),
                ..TensorProto::default()
            },
        ],
    );
    let half = to_f16(&exact).unwrap();
    let rows = run(&half, &tensor(8, &[2, 4]));
    let rows = rows[0].1.as_f32().unwrap();
    assert!(rows.iter().all(|value| value.is_finite()), "{rows:?}");
    assert!(rows[1] <= -65_000.0 && rows[0].abs() < 10.0, "{rows:?}");
}

#[test]
fn scalars_that_f16_would_lose_keep_an_operator_in_f32() {
    for (operator, number) in [("Mul", 1e-7), ("Div", 1e-6), ("Max", 1e-12)] {
        let exact = of(
            vec![
                node("Abs", &["x"], &["positive"]),
                node(operator, &["positive", "c"], &["y"]),
            ],
            vec![scalar("c", number)],
        );
        let half = to_f16(&exact).unwrap();
        assert_eq!(type_of(&half, "c"), Some(data_type::FLOAT), "{operator}");
        assert_close(&exact, &half, &tensor(9, &[2, 4]), 2e-3);
    }
}

#[test]
fn weights_of_both_types_and_weights_as_outputs_exist_in_both() {
    let mut exact = of(
        vec![
            node("MatMul", &["x", "w"], &["h"]),
            node("Add", &["h", "b"], &["sum"]),
            node("Exp", &["b"], &["constant"]),
            node("Pow", &["sum", "b"], &["powers"]),
            node("Add", &["powers", "constant"], &["y"]),
        ],
        vec![
            square("w"),
            initializer("b", &Tensor::f32([4], vec![2.0; 4]).unwrap()),
        ],
    );
    let mut graph = exact.graph().clone();
    graph.output.push(value(
        "b",
        data_type::FLOAT,
        &[frostline_graph::build::Axis::Fixed(4)],
    ));
    exact = exact.with_graph(graph).unwrap();
    let half = to_f16(&exact).unwrap();
    assert_eq!(type_of(&half, "b"), Some(data_type::FLOAT));
    assert_eq!(type_of(&half, "b/f16"), Some(data_type::FLOAT16));
    assert_close(&exact, &half, &tensor(10, &[2, 4]), 5e-3);
}

#[test]
fn constants_and_copies_become_f16_weights() {
    let stored = AttributeProto {
        t: Some(square("")),
        ..AttributeProto {
            name: "value".to_owned(),
            r#type: AttributeType::Tensor.into(),
            ..AttributeProto::default()
        }
    };
    let exact = of(
        vec![
            node("Constant", &[], &["w"]).with([stored]),
            node("Identity", &["b"], &["copy"]),
            node("MatMul", &["x", "w"], &["h"]),
            node("Add", &["h", "copy"], &["s"]),
            node("Add", &["s", "b"], &["y"]),
        ],
        vec![initializer("b", &tensor(3, &[4]))],
    );
    let half = to_f16(&exact).unwrap();
    assert_eq!(
        written(&half),
        [
            "Cast(x)",
            "MatMul(x/f16, w/f16)",
            "Add(h/f16, b/f16)",
            "Add(s/f16, b/f16)",
            "Cast(y/f16)"
        ]
    );
    assert_close(&exact, &half, &tensor(11, &[2, 4]), 2e-3);
}

#[test]
fn the_scales_of_a_resize_and_shapes_stay() {
    let image = batched("x", &[1, 4, 4]);
    let graph = GraphProto {
        name: "resize".to_owned(),
        node: vec![
            node("Conv", &["x", "w"], &["c"]),
            node("Resize", &["c", "", "scales"], &["large"])
                .with([frostline_graph::build::text("mode", "linear")]),
            node("Shape", &["large"], &["shape"]),
            node("Slice", &["shape", "first", "second"], &["batch"]),
            node("Concat", &["batch", "rest"], &["wanted"]).with([int("axis", 0)]),
            node("Reshape", &["large", "wanted"], &["y"]),
        ],
        initializer: vec![
            initializer("w", &tensor(1, &[1, 1, 1, 1])),
            initializer("scales", &Tensor::f32([4], vec![1.0, 1.0, 2.0, 2.0]).unwrap()),
            integers("first", &[0]),
            integers("second", &[1]),
            integers("rest", &[64]),
        ],
        input: vec![image],
        output: vec![batched("y", &[64])],
        ..GraphProto::default()
    };
    let exact = Model::from_proto(model(17, graph)).unwrap();
    let half = to_f16(&exact).unwrap();
    assert_eq!(type_of(&half, "scales"), Some(data_type::FLOAT));
    // Reading a shape needs no cast.
    let casts = half.nodes().iter().filter(|node| node.op_type == "Cast").count();
    assert_eq!(casts, 2, "{:?}", written(&half));
    assert_close(&exact, &half, &tensor(12, &[2, 1, 4, 4]), 2e-3);
}

#[test]
fn bodies_of_control_flow_read_f32() {
    let body = |name: &str, operator: &str| {
        let graph = GraphProto {
            name: name.to_owned(),
            node: vec![node(operator, &["h"], &[name])],
            output: vec![value(name, data_type::FLOAT, &[])],
            ..GraphProto::default()
        };
        AttributeProto {
            name: name.to_owned(),
            r#type: AttributeType::Graph.into(),
            g: Some(Box::new(graph)),
            ..AttributeProto::default()
        }
    };
    let exact = of(
        vec![
            node("MatMul", &["x", "w"], &["h"]),
            node("If", &["always"], &["chosen"])
                .with([body("then_branch", "Relu"), body("else_branch", "Neg")]),
            node("MatMul", &["chosen", "w"], &["y"]),
        ],
        vec![
            square("w"),
            TensorProto {
                name: "always".to_owned(),
                data_type: data_type::BOOL,
                raw_data: vec![1].into(),
                ..TensorProto::default()
            },
        ],
    );
    let half = to_f16(&exact).unwrap();
    assert_eq!(type_of(&half, "w/f16"), Some(data_type::FLOAT16));
    assert_close(&exact, &half, &tensor(14, &[2, 4]), 2e-3);
}

#[test]
fn other_floating_point_types_are_left_alone() {
    let cast = |from, to, code: i32| node("Cast", &[from], &[to]).with([int("to", code.into())]);
    let double = of(
        vec![
            node("MatMul", &["x", "w"], &["h"]),
            cast("h", "wide", data_type::DOUBLE),
            node("Sqrt", &["wide"], &["root"]),
            node("Add", &["root", "root"], &["sum"]),
            cast("sum", "narrow", data_type::FLOAT),
            node("MatMul", &["narrow", "w"], &["y"]),
        ],
        vec![initializer("w", &Tensor::f32([4, 4], vec![0.5; 16]).unwrap())],
    );
    let half = to_f16(&double).unwrap();
    let rows = Tensor::f32([1, 4], vec![0.3, 1.7, 2.9, 0.2]).unwrap();
    assert_close(&double, &half, &rows, 2e-3);
    assert!(
        written(&half).contains(&"Cast(h/f16)".to_owned()),
        "{:?}",
        written(&half)
    );
    for code in [data_type::FLOAT16, data_type::BFLOAT16] {
        let mixed = of(
            vec![
                node("MatMul", &["x", "w"], &["h"]),
                cast("h", "less", code),
                node("Relu", &["less"], &["positive"]),
                cast("positive", "y", data_type::FLOAT),
            ],
            vec![square("w")],
        );
        assert_eq!(to_f16(&mixed).unwrap(), mixed);
    }
}

#[test]
fn names_that_exist_are_not_taken() {
    let exact = of(
        vec![
            node("MatMul", &["x", "w"], &["x/f16"]),
            node("MatMul", &["x/f16", "w"], &["y"]),
        ],
        vec![square("w")],
    );
    let half = to_f16(&exact).unwrap();
    assert_close(&exact, &half, &tensor(15, &[2, 4]), 2e-3);
}

#[test]
fn int8_layers_compose_with_f16() {
    let network = network(17);
    let mut calibration = Calibration::new(&network, "features").unwrap();
    let outputs = run(calibration.model(), &tensor(11, &[4, 3, 8, 8]));
    calibration.add(&outputs);
    let scheme = Scheme::new(WeightBits::Seven);
    let quantized = quantize(&network, "features", &calibration.ranges(), &scheme)
        .unwrap()
        .model;
    let exact = quantized.slice(None, Some("features")).unwrap();
    let half = to_f16(&exact).unwrap();
    let integers = half
        .nodes()
        .iter()
        .filter(|node| node.op_type == "QuantizeLinear")
        .count();
    assert!(integers > 3, "{:?}", written(&half));
    let rows = tensor(13, &[3, 3, 8, 8]);
    let similarity = cosine(&run(&exact, &rows)[0].1, &run(&half, &rows)[0].1);
    assert!(similarity > 0.999, "{similarity}");
}

/// Weights in old files are listed as inputs, which may not remain without their weight.
#[test]
fn weights_listed_as_inputs_are_replaced() {
    let listed = of(vec![node("MatMul", &["x", "w"], &["y"])], vec![square("w")]);
    let mut graph = listed.graph().clone();
    let four = || frostline_graph::build::Axis::Fixed(4);
    graph.input.push(value("w", data_type::FLOAT, &[four(), four()]));
    let listed = listed.with_graph(graph).unwrap();
    let half = to_f16(&listed).unwrap();
    assert_eq!(half.graph().input.len(), 1);
    assert_close(&listed, &half, &tensor(16, &[2, 4]), 2e-3);
}

#[test]
fn attention_in_f16_can_be_fused() {
    let weight = |name: &str, seed| initializer(name, &tensor(seed, &[4, 4]));
    let graph = GraphProto {
        name: "attention".to_owned(),
        node: vec![
            node("MatMul", &["x", "wq"], &["q"]),
            node("MatMul", &["x", "wk"], &["k"]),
            node("MatMul", &["x", "wv"], &["v"]),
            node("Transpose", &["k"], &["kt"]).with([ints("perm", &[0, 2, 1])]),
            node("MatMul", &["q", "kt"], &["product"]),
            node("Mul", &["product", "half"], &["scores"]),
            node("Softmax", &["scores"], &["weights"]).with([int("axis", -1)]),
            node("MatMul", &["weights", "v"], &["y"]),
        ],
        initializer: vec![
            weight("wq", 3),
            weight("wk", 5),
            weight("wv", 7),
            scalar("half", 0.5),
        ],
        input: vec![batched("x", &[5, 4])],
        output: vec![batched("y", &[5, 4])],
        ..GraphProto::default()
    };
    let half = to_f16(&Model::from_proto(model(17, graph)).unwrap()).unwrap();
    let (fused, count) = frostline_fusion::fuse_attention(&half).unwrap();
    assert_eq!(count, 1, "{:?}", written(&half));
    let operators: Vec<&str> = fused.nodes().iter().map(|node| node.op_type.as_str()).collect();
    let [first, .., last] = operators[..] else {
        panic!("{operators:?}")
    };
    assert_eq!((first, last), ("Cast", "Cast"));
    assert!(operators.contains(&"MultiHeadAttention") && !operators.contains(&"Softmax"));
}

#[test]
fn normalizations_are_folded_before_weights_are_rounded() {
    let scale = |name: &str, values: [f32; 4]| initializer(name, &Tensor::f32([4], values.to_vec()).unwrap());
    let graph = GraphProto {
        name: "normalized".to_owned(),
        node: vec![
            node("Conv", &["x", "w"], &["c"]),
            node(
                "BatchNormalization",
                &["c", "gain", "shift", "mean", "variance"],
                &["y"],
            ),
        ],
        initializer: vec![
            initializer("w", &tensor(3, &[4, 2, 1, 1])),
            scale("gain", [1.0, 0.5, 2.0, 1.5]),
            scale("shift", [0.0, 1.0, -1.0, 0.25]),
            scale("mean", [0.5, 0.0, -0.5, 1.0]),
            // In f16 this variance would be 0.
            scale("variance", [1e-9, 1.0, 2.0, 4.0]),
        ],
        input: vec![batched("x", &[2, 3, 3])],
        output: vec![batched("y", &[4, 3, 3])],
        ..GraphProto::default()
    };
    let exact = Model::from_proto(model(17, graph)).unwrap();
    let half = for_precision(exact.clone(), Precision::F16).unwrap();
    assert!(
        half.nodes()
            .iter()
            .all(|node| node.op_type != "BatchNormalization")
    );
    assert_close(&exact, &half, &tensor(5, &[2, 2, 3, 3]), 5e-2);
}
