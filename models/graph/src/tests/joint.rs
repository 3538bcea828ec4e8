//! Cuts through several tensors.

use super::support::{assert_close, assert_parts_equal_whole, noisy, run};
use crate::build::{batched, initializer, int, model, node};
use crate::onnx::{GraphProto, NodeProto, data_type};
use crate::{GraphError, Model};
use frostline_tensor::{DType, Tensor};

/// Returns a network with two skip connections: `y` reads `a` and `b`, and `c` is between them.
fn skips(opset: i64) -> Model {
    let graph = GraphProto {
        node: vec![
            node("Relu", &["x"], &["a"]),
            node("Mul", &["a", "w"], &["b"]),
            node("Sigmoid", &["b"], &["c"]),
            node("Tanh", &["c"], &["d"]),
            node("Add", &["d", "a"], &["e"]),
            node("Sub", &["e", "b"], &["y"]),
        ],
        initializer: vec![initializer("w", &noisy(1, &[4, 6]))],
        input: vec![batched("x", &[4, 6])],
        output: vec![batched("y", &[4, 6])],
        ..GraphProto::default()
    };
    Model::from_proto(model(opset, graph)).unwrap()
}

#[test]
fn both_parts_compute_the_same_as_the_network() {
    for opset in [11, 17, 21] {
        let network = skips(opset);
        for (names, expected) in [
            (vec!["a", "b"], "a,b"),
            (vec!["c", "b", "a"], "a,b,c"),
            (vec!["d", "a", "b", "a"], "a,b,d"),
        ] {
            let (joined, cut) = network.with_cut(&names.join(",")).unwrap();
            assert_eq!(cut, expected);
            let found = joined.network().unwrap();
            assert_eq!(
                found.cut(&cut).unwrap().shape.dims(),
                [24 * cut.split(',').count()]
            );
            assert_parts_equal_whole(&joined, &[cut]);
            let input = noisy(3, &[2, 4, 6]);
            let again = joined.without_joints().unwrap();
            assert_eq!(again.nodes().len(), network.nodes().len());
            assert_eq!(again.graph().initializer, network.graph().initializer);
            assert_close(&run(&again, &input), &run(&network, &input), expected);
        }
    }
}

#[test]
fn nodes_that_the_exporter_named_alike_are_kept() {
    let mut graph = skips(17).graph().clone();
    for node in &mut graph.node {
        node.name = format!("joint/{}", node.name);
    }
    let network = skips(17).with_graph(graph).unwrap();
    let (joined, _) = network.with_cut("a,b").unwrap();
    let again = joined.without_joints().unwrap();
    assert_eq!(again.graph().node, network.graph().node);
}

#[test]
fn a_single_cut_changes_nothing() {
    let network = skips(17);
    for names in ["a", "a, a"] {
        let (same, cut) = network.with_cut(names).unwrap();
        assert_eq!((same.graph(), cut.as_str()), (network.graph(), "a"));
    }
    let crossed_by_two = network.with_cut("c").unwrap_err();
    assert!(
        matches!(crossed_by_two, GraphError::UnknownCut { .. }),
        "{crossed_by_two}"
    );
}

#[test]
fn missing_tensors_are_named() {
    for (names, missing) in [
        (vec!["a", "c"], "add `b`"),
        (vec!["b", "c"], "add `a`"),
        (vec!["c", "d"], "add `a`, `b`"),
    ] {
        let error = skips(17).with_cut(&names.join(",")).unwrap_err().to_string();
        let names = names.join(", ");
        let expected =
            format!("no cut through {names}: they do not separate the input from the output; {missing}");
        assert_eq!(error, expected);
    }
}

#[test]
fn quantized_tensors_are_found_by_their_dequantization() {
    let mut graph = skips(17).graph().clone();
    let first = graph.node.iter().position(|node| node.output[0] == "a").unwrap();
    graph.node[first].output[0] = "before".into();
    let quantization = [
        node("QuantizeLinear", &["before", "scale"], &["integers"]),
        node("DequantizeLinear", &["integers", "scale"], &["a"]),
    ];
    graph.node.splice(first + 1..first + 1, quantization);
    graph
        .initializer
        .push(initializer("scale", &Tensor::f32([], vec![0.1]).unwrap()));
    let network = Model::from_proto(model(17, graph)).unwrap();
    for names in ["before", "before,b"] {
        let error = network.with_cut(names).unwrap_err().to_string();
        assert!(error.contains("no cut `before`"), "{error}");
    }
    assert!(network.with_cut("a,b").is_ok());
}

/// Three branches of `a` meet in `y`; the first two are cut.
#[test]
fn the_fewest_and_smallest_tensors_are_missing() {
    let graph = GraphProto {
        node: vec![
            node("Relu", &["x"], &["a"]),
            node("Tanh", &["a"], &["p"]),
            node("Sigmoid", &["a"], &["q"]),
            node("Concat", &["a", "a"], &["r"]).with([crate::build::int("axis", 1)]),
            node("ReduceMax", &["r"], &["s"]).with([crate::build::ints("axes", &[1])]),
            node("Add", &["p", "q"], &["t"]),
            node("Add", &["t", "s"], &["y"]),
        ],
        input: vec![batched("x", &[4, 6])],
        output: vec![batched("y", &[4, 6])],
        ..GraphProto::default()
    };
    let model = Model::from_proto(model(13, graph)).unwrap();
    let error = model.with_cut("p,q").unwrap_err().to_string();
    assert!(error.ends_with("add `s`"), "{error}");
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let unknown = skips(17).with_cut("a,other").unwrap_err();
    assert!(matches!(unknown, GraphError::UnknownCut { .. }), "{unknown}");
    let graph = GraphProto {
        node: vec![
            node("Relu", &["x"], &["a"]),
            node("Tanh", &["x"], &["b"]),
            node("Add", &["a", "b"], &["c"]),
            node("Add", &["c", "x"], &["y"]),
        ],
        input: vec![batched("x", &[4, 6])],
        output: vec![batched("y", &[4, 6])],
        ..GraphProto::default()
    };
    let around = Model::from_proto(model(17, graph)).unwrap();
    let error = around.with_cut("a,b").unwrap_err().to_string();
    assert_eq!(
        error,
        "no cut through a, b: later layers also read the network's input"
    );
}

/// Returns a network whose last layer reads a tensor of this type from before `c`.
fn masked(opset: i64, code: i32) -> Model {
    let float = || crate::build::int("to", 1);
    let graph = GraphProto {
        node: vec![
            node("Mul", &["x", "w"], &["scaled"]),
            node("Cast", &["scaled"], &["mask"]).with([crate::build::int("to", code.into())]),
            node("Tanh", &["scaled"], &["c"]),
            node("Sigmoid", &["c"], &["d"]),
            node("Cast", &["mask"], &["back"]).with([float()]),
            node("Mul", &["d", "back"], &["y"]),
        ],
        initializer: vec![initializer("w", &noisy(1, &[4, 6]))],
        input: vec![batched("x", &[4, 6])],
        output: vec![batched("y", &[4, 6])],
        ..GraphProto::default()
    };
    Model::from_proto(model(opset, graph)).unwrap()
}

#[test]
fn integers_and_booleans_cross_a_joint_cut() {
    for opset in [11, 17, 21] {
        for code in [
            data_type::INT64,
            data_type::INT32,
            data_type::BOOL,
            data_type::UINT8,
        ] {
            let network = masked(opset, code);
            let (joined, cut) = network.with_cut("c,mask").unwrap();
            assert_eq!(cut, "mask,c");
            assert_parts_equal_whole(&joined, &[cut]);
            let again = joined.without_joints().unwrap();
            assert_eq!(again.graph().initializer, network.graph().initializer);
            assert_eq!(again.nodes().len(), network.nodes().len());
        }
    }
    let error = masked(17, data_type::BOOL).with_cut("c").unwrap_err().to_string();
    assert!(error.ends_with("use `c,scaled`"), "{error}");
    let error = masked(17, data_type::DOUBLE).with_cut("c,mask").unwrap_err();
    let expected = "no cut through c, mask: `mask` is of type F64, not f32 or an integer of up to 24 bits";
    assert_eq!(error.to_string(), expected);
}

fn tensors_at(model: &Model, cut: &str) -> Vec<(String, DType, Vec<usize>)> {
    let network = model.network().unwrap();
    let tensors = network.cut(cut).unwrap().tensors.iter();
    tensors
        .map(|tensor| (tensor.name.clone(), tensor.dtype, tensor.shape.dims().to_vec()))
        .collect()
}

#[test]
fn the_tensors_of_a_joint_cut_are_known_also_in_a_slice() {
    for (code, dtype) in [
        (data_type::INT64, DType::I64),
        (data_type::INT32, DType::I32),
        (data_type::BOOL, DType::U8),
        (data_type::UINT8, DType::U8),
    ] {
        let (joined, cut) = masked(17, code).with_cut("c,mask").unwrap();
        let expected = [
            ("mask".to_owned(), dtype, vec![4, 6]),
            ("c".to_owned(), DType::F32, vec![4, 6]),
        ];
        assert_eq!(tensors_at(&joined, &cut), expected);
        let slice = joined.slice(None, Some(&cut)).unwrap();
        assert_eq!(tensors_at(&slice, &cut), expected);
        let network = joined.network().unwrap();
        let others = network.cuts.iter().filter(|other| other.name != cut);
        assert!(others.clone().count() > 0);
        assert!(others.clone().all(|other| other.tensors.is_empty()));
    }
}

#[test]
fn other_nodes_are_not_tensors_of_a_joint_cut() {
    let (joined, cut) = masked(17, data_type::INT64).with_cut("c,mask").unwrap();
    let concat = format!("frostline.joint/{cut}");
    type Change<'a> = &'a dyn Fn(&mut NodeProto);
    let changes: [Change<'_>; 4] = [
        &|node| {
            if node.name == concat {
                node.name = "concat".into();
            }
        },
        &|node| {
            if node.op_type == "Flatten" {
                node.attribute = vec![int("axis", 2)];
            }
        },
        &|node| {
            if node.op_type == "Flatten" && node.output[0].ends_with("/1") {
                node.op_type = "Identity".into();
                node.attribute.clear();
            }
        },
        &|node| {
            if node.name == concat {
                let first = node.input[0].clone();
                node.input.push(first);
            }
        },
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut graph = joined.graph().clone();
        graph.node.iter_mut().for_each(change);
        let changed = joined.with_graph(graph).unwrap();
        let Ok(network) = changed.network() else {
            continue;
        };
        let all = network.cuts.iter().flat_map(|cut| &cut.tensors);
        assert_eq!(all.count(), 0, "change {number}");
    }
}
