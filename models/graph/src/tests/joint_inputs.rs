//! Networks with several inputs, such as token ids and a mask.

use super::support::{assert_parts_equal_whole, run};
use crate::build::{Axis, initializer, int, integers, model, node, value};
use crate::onnx::{GraphProto, NodeProto, TensorProto, ValueInfo, data_type};
use crate::{GraphError, JointInput, Model, ModelLimits};
use frostline_engine::{Session, SessionOptions};
use frostline_tensor::{Shape, Tensor};

const OPSETS: [i64; 3] = [11, 17, 21];

/// Returns an input with the batch axis `rows`.
fn input(name: &str, code: i32, row: &[usize]) -> ValueInfo {
    let fixed = row.iter().map(|size| Axis::Fixed(*size));
    let axes: Vec<Axis> = std::iter::once(Axis::Named("rows".into())).chain(fixed).collect();
    value(name, code, &axes)
}

fn reshape(from: &str, shape: &str, to: &str) -> NodeProto {
    node("Reshape", &[from, shape], &[to])
}

/// Returns an encoder whose two layers read a mask of this type.
fn encoder(opset: i64, mask: i32) -> Model {
    let numbers = |name: &str, dims: &[usize]| {
        let count: usize = dims.iter().product();
        let values = (0..count).map(|index| ((index * 7) % 11) as f32 / 11.0 - 0.4);
        initializer(name, &Tensor::f32(dims.to_vec(), values.collect()).unwrap())
    };
    let graph = GraphProto {
        node: vec![
            node("Gather", &["table", "ids"], &["embedded"]),
            node("Cast", &["mask"], &["weights"]).with([int("to", data_type::FLOAT.into())]),
            reshape("weights", "column", "mask_column"),
            node("Mul", &["embedded", "mask_column"], &["masked"]),
            node("Tanh", &["masked"], &["layer"]),
            node("MatMul", &["layer", "w"], &["product"]),
            node("Mul", &["product", "mask_column"], &["again"]),
            node("Flatten", &["again"], &["flat"]),
            node("Gemm", &["flat", "classes"], &["y"]),
        ],
        initializer: vec![
            numbers("table", &[10, 3]),
            numbers("w", &[3, 3]),
            numbers("classes", &[12, 2]),
            integers("column", &[0, 4, 1]),
        ],
        input: vec![input("ids", data_type::INT64, &[4]), input("mask", mask, &[4])],
        output: vec![input("y", data_type::FLOAT, &[2])],
        ..GraphProto::default()
    };
    Model::from_proto(model(opset, graph)).unwrap()
}

fn joint(name: &str, data_type: i32, row: &[usize]) -> JointInput {
    JointInput {
        name: name.into(),
        data_type,
        shape: Shape::from(row.to_vec()),
    }
}

#[test]
fn the_joint_input_gives_the_same_bits() {
    let ids = Tensor::i64(vec![2, 4], vec![1, 9, 0, 3, 7, 7, 2, 5]).unwrap();
    let mask = Tensor::i64(vec![2, 4], vec![1, 1, 1, 0, 1, 0, 0, 0]).unwrap();
    let both = vec![1., 9., 0., 3., 1., 1., 1., 0., 7., 7., 2., 5., 1., 0., 0., 0.];
    for opset in OPSETS {
        let network = encoder(opset, data_type::INT64);
        let joined = network.with_joint_input().unwrap();
        assert_eq!(joined, network.with_joint_input().unwrap());
        let bytes = network.to_bytes().unwrap();
        let mut session = Session::open(&bytes, &SessionOptions::default()).unwrap();
        let expected = session.run(&[("ids", &ids), ("mask", &mask)]).unwrap();
        let actual = run(&joined, &Tensor::f32(vec![2, 8], both.clone()).unwrap());
        assert_eq!(actual.as_bytes(), expected[0].1.as_bytes());
    }
}

#[test]
fn parts_of_a_joined_network_are_networks() {
    for opset in OPSETS {
        let joined = encoder(opset, data_type::BOOL).with_joint_input().unwrap();
        let network = joined.network().unwrap();
        assert_eq!(network.input.name, "ids,mask");
        assert_eq!(network.input.shape.dims(), [8]);
        let cuts: Vec<&str> = network.cuts.iter().map(|cut| cut.name.as_str()).collect();
        assert_eq!(cuts, ["again", "flat", "y"]);
        let (cut_network, cut) = joined.with_cut("layer,mask").unwrap();
        assert_eq!(cut, "mask,layer");
        let found = cut_network.network().unwrap();
        assert_eq!(found.cut(&cut).unwrap().shape.dims(), [16]);
        assert_parts_equal_whole(&cut_network, &[cut.clone(), "again".into()]);
        let expected = vec![
            joint("ids", data_type::INT64, &[4]),
            joint("mask", data_type::BOOL, &[4]),
        ];
        let prefix = cut_network.slice(None, Some(&cut)).unwrap().to_bytes().unwrap();
        let admitted = Model::admit(prefix.into(), &ModelLimits::default()).unwrap();
        assert_eq!(admitted.joint_inputs(), Some(expected));
        assert_eq!(cut_network.slice(Some(&cut), None).unwrap().joint_inputs(), None);
        assert_eq!(joined.with_cut("ids,mask").unwrap(), (joined, "ids,mask".into()));
    }
}

#[test]
fn the_mask_is_suggested_and_a_larger_one_is_computed_again() {
    let joined = encoder(17, data_type::INT64).with_joint_input().unwrap();
    let error = joined.with_cut("layer").unwrap_err().to_string();
    assert_eq!(
        error,
        "the network has no cut `layer`; it does not separate the input from the output; use `layer,mask`"
    );
    let error = joined.with_cut("layer,ids").unwrap_err().to_string();
    assert!(error.ends_with("add `mask`"), "{error}");
    let (cut_network, cut) = joined.with_cut("layer,mask").unwrap();
    let suffix = cut_network.slice(Some(&cut), None).unwrap();
    let operators: Vec<&str> = suffix.nodes().iter().map(|node| node.op_type.as_str()).collect();
    let again = ["Cast", "Reshape"];
    assert!(operators.windows(2).any(|pair| pair == again), "{operators:?}");
    let error = joined.with_cut("embedded,masked").unwrap_err().to_string();
    assert!(error.ends_with("add `mask`"), "{error}");
}

#[test]
fn the_original_inputs_are_restored() {
    for opset in OPSETS {
        let mut graph = encoder(opset, data_type::BOOL).graph().clone();
        graph.input[1] = value("mask", data_type::BOOL, &[Axis::batch(), Axis::Fixed(4)]);
        graph.input[1].doc_string = "1 for tokens".into();
        let network = encoder(opset, data_type::BOOL).with_graph(graph).unwrap();
        let joined = network.with_joint_input().unwrap();
        assert_eq!(joined.clone().without_joints().unwrap(), network);
        let (cut_network, _) = joined.with_cut("layer,mask").unwrap();
        let again = cut_network.without_joints().unwrap();
        assert_eq!(again.graph().input, network.graph().input);
        assert_eq!(again.graph().initializer, network.graph().initializer);
        assert_eq!(again.nodes().len(), network.nodes().len());
    }
}

#[test]
fn inputs_are_restored_without_their_declarations() {
    let network = encoder(17, data_type::BOOL);
    let joined = network.with_joint_input().unwrap();
    let graph = GraphProto {
        value_info: Vec::new(),
        ..joined.graph().clone()
    };
    let again = joined.with_graph(graph).unwrap().without_joints().unwrap();
    assert_eq!(again, network);
}

/// Returns a network that adds inputs of different types and shapes, the last of which is not read.
fn mixture() -> Model {
    let graph = GraphProto {
        node: vec![
            node("Cast", &["a"], &["b"]).with([int("to", data_type::FLOAT.into())]),
            node("Add", &["b", "x"], &["y"]),
        ],
        input: vec![
            input("a", data_type::INT32, &[2, 3]),
            input("x", data_type::FLOAT, &[2, 3]),
            input("unread", data_type::UINT8, &[]),
        ],
        output: vec![input("y", data_type::FLOAT, &[2, 3])],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

#[test]
fn types_and_shapes_are_restored_and_unread_inputs_are_known() {
    let joined = mixture().with_joint_input().unwrap();
    let expected = vec![
        joint("a", data_type::INT32, &[2, 3]),
        joint("x", data_type::FLOAT, &[2, 3]),
        joint("unread", data_type::UINT8, &[]),
    ];
    assert_eq!(joined.joint_inputs(), Some(expected.clone()));
    assert_eq!(joined.slice(None, None).unwrap().joint_inputs(), Some(expected));
    let values: Vec<f32> = (0..13).map(|value| value as f32 - 3.5).collect();
    let sums = run(&joined, &Tensor::f32(vec![1, 13], values).unwrap());
    assert_eq!(sums.as_f32().unwrap(), [-0.5, 1.5, 3.5, 5.5, 6.5, 8.5]);
    assert_eq!(joined.without_joints().unwrap(), mixture());
}

#[test]
fn a_single_input_of_integers_gets_another_name() {
    let mut graph = encoder(17, data_type::INT64).graph().clone();
    graph.node[1] = node("Cast", &["ids"], &["weights"]).with([int("to", data_type::FLOAT.into())]);
    graph.input.truncate(1);
    let network = Model::from_proto(model(17, graph)).unwrap();
    let joined = network.with_joint_input().unwrap();
    assert_eq!(joined.input_name().unwrap(), "ids/f32");
    assert_eq!(
        joined.joint_inputs(),
        Some(vec![joint("ids", data_type::INT64, &[4])])
    );
    assert_eq!(joined.clone().without_joints().unwrap(), network);
    assert_eq!(joined.with_joint_input().unwrap(), joined);
    let slice = joined.slice(None, Some("again")).unwrap();
    assert_eq!(slice.joint_inputs(), joined.joint_inputs());
    assert_eq!(slice.network().unwrap().cuts[0].name, "again");
}

/// Returns the joined encoder after a change.
fn changed(change: impl Fn(&mut GraphProto)) -> Model {
    let joined = encoder(17, data_type::BOOL).with_joint_input().unwrap();
    let mut graph = joined.graph().clone();
    change(&mut graph);
    joined.with_graph(graph).unwrap()
}

fn weight<'a>(graph: &'a mut GraphProto, end: &str) -> &'a mut TensorProto {
    let mut weights = graph.initializer.iter_mut();
    weights.find(|weight| weight.name.ends_with(end)).unwrap()
}

#[test]
fn other_patterns_are_not_joint_inputs() {
    assert!(changed(|_| ()).joint_inputs().is_some());
    let rename = |graph: &mut GraphProto, from: &str, to: &str| {
        let nodes = graph.node.iter_mut();
        for name in nodes.flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
            *name = name.replace(from, to);
        }
    };
    let changes: [&dyn Fn(&mut GraphProto); 15] = [
        &|graph| graph.node[0].name.push('s'),
        &|graph| graph.node[0].op_type = "Concat".into(),
        &|graph| graph.node[0].attribute = vec![int("axis", 0)],
        &|graph| *weight(graph, "sizes") = integers("frostline.joint/input/sizes", &[5, 3]),
        &|graph| *weight(graph, "sizes") = integers("frostline.joint/input/sizes", &[i64::MIN, i64::MAX]),
        &|graph| *weight(graph, "sizes") = integers("frostline.joint/input/sizes", &[4, 4, 0]),
        &|graph| weight(graph, "sizes").dims = vec![i64::MAX, i64::MAX],
        &|graph| graph.input[0] = input("ids,mask", data_type::FLOAT, &[9]),
        &|graph| graph.input[0] = input("ids,mask", data_type::INT64, &[8]),
        &|graph| graph.input.push(input("other", data_type::FLOAT, &[8])),
        &|graph| graph.output.push(input("ids,mask", data_type::FLOAT, &[8])),
        &|graph| graph.node[1].attribute = vec![int("to", data_type::INT32.into())],
        &|graph| graph.node.push(node("Relu", &["ids,mask"], &["z"])),
        &|graph| rename(graph, "i64/4/ids", "i64/04/ids"),
        &|graph| rename(graph, "i64/4/ids", "i64/99999999999999999999x4/ids"),
    ];
    for (number, change) in changes.iter().enumerate() {
        assert_eq!(changed(change).joint_inputs(), None, "change {number}");
        let _ = changed(change).network();
        let _ = changed(change).without_joints();
    }
}

#[test]
fn parts_that_other_nodes_read_are_not_joint_inputs() {
    let part = "frostline.joint/input/bool/4/mask";
    let read = changed(|graph| graph.node.push(node("Relu", &[part], &["z"])));
    assert_eq!(read.joint_inputs(), None);
    let output = changed(|graph| graph.output.push(input(part, data_type::FLOAT, &[4])));
    assert_eq!(output.joint_inputs(), None);
    let elsewhere = changed(|graph| {
        graph.node.remove(2);
        graph.node.insert(0, node("Not", &["off"], &["mask"]));
        graph.initializer.push(TensorProto {
            name: "off".into(),
            data_type: data_type::BOOL,
            raw_data: vec![0; 4].into(),
            dims: vec![1, 4],
            ..TensorProto::default()
        });
    });
    assert_eq!(elsewhere.joint_inputs(), None);
}

#[test]
fn what_cannot_be_joined_is_refused() {
    let refused = |inputs: Vec<ValueInfo>| {
        let mut graph = mixture().graph().clone();
        graph.input.truncate(2);
        graph.input.extend(inputs);
        let network = Model::from_proto(model(17, graph)).unwrap();
        let error = network.with_joint_input().unwrap_err();
        assert!(matches!(error, GraphError::JointInput { .. }), "{error}");
        error.to_string()
    };
    let open = value(
        "z",
        data_type::INT64,
        &[Axis::batch(), Axis::Named("length".into())],
    );
    assert_eq!(
        refused(vec![open]),
        "cannot join the inputs a, x, z: axis 1 of `z` is open; export the network with a fixed length per sample"
    );
    let scalar = refused(vec![value("z", data_type::INT64, &[])]);
    assert!(scalar.contains("does not have a batch axis"), "{scalar}");
    let text = refused(vec![input("z", 8, &[4])]);
    assert!(text.contains("cannot be converted from f32"), "{text}");
    let one = value("z", data_type::INT64, &[Axis::Fixed(1), Axis::Fixed(4)]);
    assert!(refused(vec![one]).contains("first axes differ"));
    let untyped = ValueInfo {
        name: "z".into(),
        ..ValueInfo::default()
    };
    assert!(refused(vec![untyped]).contains("is not a tensor"));
    let huge = input("z", data_type::BOOL, &[usize::MAX >> 1, 4]);
    assert!(refused(vec![huge]).contains("overflows"));
    let seven = (0..7).map(|number| input(&number.to_string(), data_type::BOOL, &[1]));
    assert!(refused(seven.collect()).contains("exceed the limit of 8"));
    let none = GraphProto {
        input: Vec::new(),
        node: vec![node("Relu", &["w"], &["y"])],
        initializer: vec![integers("w", &[1])],
        ..mixture().graph().clone()
    };
    let none = Model::from_proto(model(17, none)).unwrap().with_joint_input();
    assert!(matches!(none, Err(GraphError::Inputs { count: 0, .. })));
}

#[test]
fn files_with_several_inputs_are_joined_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("encoder.onnx");
    let network = encoder(17, data_type::INT64);
    std::fs::write(&path, network.to_bytes().unwrap()).unwrap();
    let refused = Model::read(&path).unwrap_err();
    assert!(
        matches!(refused, GraphError::Inputs { count: 2, .. }),
        "{refused}"
    );
    let joined = Model::read_joined(&path, &crate::Interface::default()).unwrap();
    assert_eq!(joined.joint_inputs().unwrap().len(), 2);
    let mut graph = network.graph().clone();
    for (input, code) in graph.input.iter_mut().zip([data_type::INT64; 2]) {
        *input = value(&input.name, code, &[Axis::Fixed(1), Axis::Fixed(4)]);
    }
    let baked = network.with_graph(graph).unwrap();
    std::fs::write(&path, baked.to_bytes().unwrap()).unwrap();
    let opened = Model::read_joined(&path, &crate::Interface::default()).unwrap();
    assert_eq!(opened.joint_inputs(), joined.joint_inputs());
    assert_eq!(opened.with_cut("layer,mask").unwrap().1, "mask,layer");
    let restored = opened.without_joints().unwrap();
    let batched = value("ids", data_type::INT64, &[Axis::batch(), Axis::Fixed(4)]);
    assert_eq!(restored.graph().input[0], batched);
}

/// Returns a network that looks up its mask by the number of the sample, as exporters of text encoders do. The number
/// is shifted by `shift` samples.
fn looked_up(operator: &str, length: usize, shift: i64) -> Model {
    let first = vec![
        node("Shape", &["x"], &["shape"]),
        node("Gather", &["shape", "zero"], &["batch"]).with([int("axis", 0)]),
        node("Range", &["zero", "batch", "one"], &["numbers"]),
        node("Add", &["numbers", "shift"], &["shifted"]),
        reshape("shifted", "all", "rows"),
        node("Range", &["zero", "length", "one"], &["places"]),
        node("Greater", &["x", "threshold"], &["mask"]),
    ];
    let vectors = vec![
        node("Concat", &["batch_vector", "length_vector"], &["grid"]).with([int("axis", 0)]),
        node("Expand", &["rows", "grid"], &["all_rows"]),
        node("Expand", &["places", "grid"], &["all_places"]),
        reshape("all_rows", "components", "row_components"),
        reshape("all_places", "components", "place_components"),
        node("Concat", &["row_components", "place_components"], &["indices"]).with([int("axis", -1)]),
        node("GatherND", &["mask", "indices"], &["found"]),
    ];
    let offsets = vec![
        node("Mul", &["rows", "length"], &["starts"]),
        node("Add", &["starts", "places"], &["indices"]),
        node("Flatten", &["mask"], &["flat"]).with([int("axis", 2)]),
        node("Gather", &["flat", "indices"], &["columns"]).with([int("axis", 0)]),
        reshape("columns", "components_of_one", "found"),
    ];
    let last = vec![
        node("Where", &["found", "x", "threshold"], &["kept"]),
        node("Relu", &["kept"], &["y"]),
    ];
    let vector = node("Reshape", &["batch", "single"], &["batch_vector"]);
    let lookup = if operator == "GatherND" {
        [vec![vector], vectors].concat()
    } else {
        offsets
    };
    let size = length as i64;
    let scalar =
        |name: &str, number: i64| initializer(name, &Tensor::i64(Vec::<usize>::new(), vec![number]).unwrap());
    let graph = GraphProto {
        node: [first, lookup, last].concat(),
        initializer: vec![
            scalar("zero", 0),
            scalar("one", 1),
            scalar("shift", shift),
            scalar("length", size),
            integers("all", &[-1, 1]),
            integers("single", &[1]),
            integers("length_vector", &[size]),
            integers("components", &[-1, size, 1]),
            integers("components_of_one", &[-1, size]),
            initializer("threshold", &Tensor::f32(vec![1], vec![0.1]).unwrap()),
        ],
        input: vec![crate::build::batched("x", &[length])],
        output: vec![crate::build::batched("y", &[length])],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

#[test]
fn masks_looked_up_by_the_number_of_the_sample_keep_samples_independent() {
    for operator in ["GatherND", "Gather"] {
        // More than 256 elements of a `Range` are not evaluated.
        for length in [4, 300] {
            let network = looked_up(operator, length, 0);
            let found = network.network().unwrap();
            assert_eq!(
                found.cuts.last().map(|cut| cut.name.as_str()),
                Some("y"),
                "{operator}"
            );
            let (cut_network, cut) = network.with_joint_input().unwrap().with_cut("kept").unwrap();
            assert_parts_equal_whole(&cut_network, &[cut]);
            let bytes = network.to_bytes().unwrap();
            Model::admit(bytes.into(), &ModelLimits::default()).unwrap();
        }
        for shift in [1, -1] {
            let mixed = looked_up(operator, 4, shift).network().unwrap();
            assert_eq!(mixed.cuts, [], "{operator} {shift}");
        }
    }
}

#[test]
fn a_lookup_that_reaches_other_samples_mixes_them() {
    for length in [3, 5] {
        let network = looked_up("Gather", 4, 0);
        let mut graph = network.graph().clone();
        // The rows start at other places than the samples.
        let mut nodes = graph.node.iter_mut();
        let starts = nodes.find(|node| node.output[0] == "starts").unwrap();
        starts.input[1] = "other".into();
        let other = Tensor::i64(Vec::<usize>::new(), vec![length]).unwrap();
        graph.initializer.push(initializer("other", &other));
        let mixed = network.with_graph(graph).unwrap().network().unwrap();
        assert_eq!(mixed.cuts, [], "{length}");
    }
    let mut graph = looked_up("Gather", 4, 0).graph().clone();
    let places = graph.node.iter_mut().find(|node| node.output[0] == "places");
    places.unwrap().input[1] = "longer".into();
    graph.initializer.push(initializer(
        "longer",
        &Tensor::i64(Vec::<usize>::new(), vec![5]).unwrap(),
    ));
    graph
        .initializer
        .retain(|weight| weight.name != "components_of_one");
    graph.initializer.push(integers("components_of_one", &[-1, 5]));
    graph.node.truncate(graph.node.len() - 2);
    graph
        .node
        .push(node("Cast", &["found"], &["y"]).with([int("to", data_type::FLOAT.into())]));
    let mixed = Model::from_proto(model(17, graph)).unwrap().network().unwrap();
    assert_eq!(mixed.cuts, []);
}
