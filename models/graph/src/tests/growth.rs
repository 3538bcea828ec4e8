//! Memory bounds that hold for every batch, and models that are refused because a bound does not exist.

use super::support::{skeleton, squeezenet};
use crate::build::{batched, initializer, int, integers, ints, model, node, text};
use crate::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use crate::{Footprint, GraphError, Inadmissible, MemoryBound, Model, ModelLimits};
use frostline_tensor::Tensor;
use prost::Message;

/// Network from `x: [batch, 4]` through `nodes` to `y`.
fn network(nodes: Vec<NodeProto>, weights: Vec<TensorProto>) -> Vec<u8> {
    of_opset(17, &[4], nodes, weights)
}

fn of_opset(opset: i64, row: &[usize], nodes: Vec<NodeProto>, weights: Vec<TensorProto>) -> Vec<u8> {
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: vec![batched("x", row)],
        output: vec![batched("y", row)],
        ..GraphProto::default()
    };
    model(opset, graph).encode_to_vec()
}

fn admit(bytes: Vec<u8>) -> Result<Model, GraphError> {
    Model::admit(bytes.into(), &ModelLimits::default())
}

#[track_caller]
fn refused(bytes: Vec<u8>, words: &[&str]) -> Inadmissible {
    match admit(bytes) {
        Err(GraphError::Inadmissible(refusal)) => {
            let message = refusal.to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
            refusal
        }
        other => panic!("{other:?}"),
    }
}

/// Nodes that compute the batch size of `x` as a vector `n` with a single integer.
fn batch() -> Vec<NodeProto> {
    vec![
        node("Shape", &["x"], &["s"]),
        node("Slice", &["s", "zero", "one"], &["n"]),
    ]
}

fn zero_and_one() -> Vec<TensorProto> {
    vec![integers("zero", &[0]), integers("one", &[1])]
}

/// Network in which `middle` computes `m` from the batch size `n`, with a value of size `m`.
fn sized_by(middle: Vec<NodeProto>, weights: Vec<TensorProto>) -> Vec<u8> {
    let mut nodes = batch();
    nodes.extend(middle);
    nodes.push(node("ConstantOfShape", &["m"], &["filled"]));
    nodes.push(node("ReduceSum", &["filled"], &["sum"]));
    nodes.push(node("Add", &["x", "sum"], &["y"]));
    let mut all = zero_and_one();
    all.extend(weights);
    network(nodes, all)
}

#[test]
fn the_footprint_sums_values_that_are_alive() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Neg", &["a"], &["b"]),
        node("Add", &["x", "b"], &["y"]),
    ];
    let footprint = admit(network(nodes, vec![])).unwrap().footprint().unwrap();
    let samples = |values: u64| MemoryBound {
        fixed: 0,
        per_sample: values * 16,
    };
    assert_eq!(
        (footprint.largest, footprint.alive, footprint.total),
        (samples(1), samples(3), samples(4))
    );
}

#[test]
fn shape_bombs_are_named() {
    let huge = || vec![integers("huge", &[1 << 20, 1 << 20])];
    let bombs: Vec<(Vec<NodeProto>, Vec<TensorProto>)> = vec![
        (
            vec![
                node("ConstantOfShape", &["huge"], &["c"]),
                node("ReduceSum", &["c"], &["r"]),
            ],
            huge(),
        ),
        (
            vec![
                node("Expand", &["t", "huge"], &["c"]),
                node("ReduceSum", &["c"], &["r"]),
            ],
            [
                huge(),
                vec![initializer("t", &Tensor::f32(vec![1], vec![1.0]).unwrap())],
            ]
            .concat(),
        ),
        (
            vec![
                node("Tile", &["x", "huge"], &["c"]),
                node("ReduceSum", &["c"], &["r"]),
            ],
            huge(),
        ),
        (
            vec![
                node("Pad", &["x", "pads"], &["c"]),
                node("ReduceSum", &["c"], &["r"]),
            ],
            vec![integers("pads", &[0, 1 << 30, 0, 1 << 30])],
        ),
        (
            vec![
                node("Range", &["a", "b", "d"], &["c"]),
                node("Cast", &["c"], &["r"]).with([int("to", 1)]),
            ],
            vec![
                integers("a", &[0]),
                integers("b", &[1 << 40]),
                integers("d", &[1]),
            ],
        ),
        (
            vec![
                node("Cast", &["x"], &["i"]).with([int("to", 7)]),
                node("OneHot", &["i", "depth", "v"], &["c"]),
                node("ReduceSum", &["c"], &["r"]),
            ],
            vec![
                integers("depth", &[1 << 40]),
                initializer("v", &Tensor::f32(vec![2], vec![0.0, 1.0]).unwrap()),
            ],
        ),
    ];
    for (mut nodes, weights) in bombs {
        let (bomb, name) = nodes
            .iter()
            .find(|node| node.output[0] == "c")
            .map(|node| (node.op_type.clone(), node.name.clone()))
            .unwrap();
        nodes.push(node("Add", &["x", "r"], &["y"]));
        let refusal = refused(network(nodes, weights), &[&bomb, &format!("`{name}`"), "at most"]);
        assert!(matches!(refusal, Inadmissible::ValueSize { .. }), "{refusal:?}");
    }
}

#[test]
fn images_are_not_blown_up() {
    let row = [3, 64, 64];
    let scales = |values: &[f32]| initializer("scales", &Tensor::f32(vec![4], values.to_vec()).unwrap());
    let pooled = |mut nodes: Vec<NodeProto>| {
        nodes.push(node("ReduceMax", &["c"], &["r"]).with([ints("axes", &[2, 3])]));
        nodes.push(node("Add", &["x", "r"], &["y"]));
        nodes
    };
    let resize = |values: &[f32]| {
        let nodes = pooled(vec![node("Resize", &["x", "", "scales"], &["c"])]);
        of_opset(17, &row, nodes, vec![scales(values)])
    };
    refused(resize(&[1.0, 1.0, 4000.0, 4000.0]), &["Resize", "at most"]);
    refused(resize(&[2.0, 1.0, 1.0, 1.0]), &["Resize", "batch"]);
    refused(resize(&[1.0, 1.0, 1.999_999_9, 1.0]), &["Resize", "round"]);
    admit(resize(&[1.0, 1.0, 2.0, 1.5])).unwrap();
    let upsample = pooled(vec![node("Upsample", &["x", "scales"], &["c"])]);
    let upsample = of_opset(9, &row, upsample, vec![scales(&[1.0, 1.0, 4000.0, 4000.0])]);
    refused(upsample, &["Upsample", "at most"]);
    let kernel = initializer("k", &Tensor::f32(vec![3, 1, 1, 1], vec![1.0; 3]).unwrap());
    let up = node("ConvTranspose", &["x", "k"], &["c"]).with([ints("strides", &[4000, 4000])]);
    refused(
        of_opset(17, &row, pooled(vec![up.clone()]), vec![kernel.clone()]),
        &["ConvTranspose", "at most"],
    );
    let unknown = up.with([text("auto_pad", "SAME_UPPER")]);
    refused(
        of_opset(17, &row, pooled(vec![unknown]), vec![kernel]),
        &["ConvTranspose", "cannot be bounded"],
    );
}

#[test]
fn sizes_that_depend_on_the_data_are_refused() {
    let from_data = |grow: NodeProto| {
        let nodes = vec![
            node("ReduceMax", &["x"], &["most"]).with([int("keepdims", 0)]),
            node("Cast", &["most"], &["count"]).with([int("to", 7)]),
            node("Unsqueeze", &["count", "zero"], &["d"]),
            grow,
            node("ReduceSum", &["c"], &["r"]),
            node("Add", &["x", "r"], &["y"]),
        ];
        network(nodes, zero_and_one())
    };
    for grow in [
        node("ConstantOfShape", &["d"], &["c"]),
        node("Expand", &["most", "d"], &["c"]),
        node("Tile", &["x", "d"], &["c"]),
    ] {
        let operator = grow.op_type.clone();
        let refusal = refused(from_data(grow), &[&operator, "`c`", "depends on the data"]);
        assert!(matches!(refusal, Inadmissible::UnknownSize { .. }));
    }
    // Operators that only shrink the input are refused as well, because the output may be empty.
    let cut = vec![
        node("Cast", &["x"], &["d"]).with([int("to", 7)]),
        node("Reshape", &["x", "d"], &["r"]),
        node("Add", &["x", "x"], &["y"]),
    ];
    refused(network(cut, vec![]), &["Reshape", "`r`", "depends on the data"]);
}

/// Models that are small for the probed batch sizes and huge for another batch size.
#[test]
fn shapes_follow_the_batch_in_straight_lines() {
    let number = |value: i64| vec![integers("v", &[value])];
    let jump = |comparison: &str, value: i64| {
        let middle = vec![
            node(comparison, &["n", "v"], &["is"]),
            node("Where", &["is", "huge", "one"], &["m"]),
        ];
        sized_by(
            middle,
            [number(value), vec![integers("huge", &[1 << 40])]].concat(),
        )
    };
    for (comparison, value) in [("Equal", 8), ("Less", 500), ("Greater", 5000), ("LessOrEqual", 1)] {
        let refusal = refused(jump(comparison, value), &[comparison, "every batch"]);
        assert!(matches!(refusal, Inadmissible::NonlinearGrowth { .. }));
    }
    let by = |operator: &str, value: i64| sized_by(vec![node(operator, &["n", "v"], &["m"])], number(value));
    for (operator, value) in [
        ("Div", 2),
        ("Mod", 7),
        ("Pow", 2),
        ("Max", 100),
        ("Min", 100),
        ("Sub", 5),
    ] {
        refused(by(operator, value), &["every batch"]);
    }
    refused(
        sized_by(vec![node("Mul", &["n", "n"], &["m"])], vec![]),
        &["Mul", "every batch"],
    );
    let float = vec![
        node("Cast", &["n"], &["f"]).with([int("to", 1)]),
        node("Cast", &["f"], &["m"]).with([int("to", 7)]),
    ];
    refused(sized_by(float, vec![]), &["Cast", "every batch"]);
    for (operator, value) in [("Mul", 3), ("Add", 5), ("Div", 1), ("Max", 0), ("Max", -4)] {
        admit(by(operator, value)).unwrap_or_else(|error| panic!("{operator} {value}: {error}"));
    }
    // Exporters write this to expand to the batch. The sizes are never equal to -1.
    let idiom = vec![
        node("Equal", &["n", "v"], &["is"]),
        node("Where", &["is", "one", "n"], &["m"]),
    ];
    admit(sized_by(idiom, number(-1))).unwrap();
}

#[test]
fn the_batch_is_one_axis() {
    let squared = vec![
        node("Transpose", &["x"], &["t"]),
        node("MatMul", &["x", "t"], &["sq"]),
        node("MatMul", &["sq", "x"], &["y"]),
    ];
    refused(network(squared, vec![]), &["MatMul", "square of the batch"]);
    let cut = vec![
        node("Slice", &["x", "zero", "one"], &["first"]),
        node("Add", &["x", "first"], &["y"]),
    ];
    refused(network(cut, zero_and_one()), &["Slice", "along an axis"]);
    let counted = |step: i64| {
        let nodes = vec![
            node("Shape", &["x"], &["s"]),
            node("Gather", &["s", "zero"], &["n"]),
            node("Squeeze", &["n", "zero"], &["count"]),
            node("Range", &["start", "count", "step"], &["range"]),
            node("Cast", &["range"], &["f"]).with([int("to", 1)]),
            node("Unsqueeze", &["f", "one"], &["column"]),
            node("Add", &["x", "column"], &["y"]),
        ];
        let scalar = |name: &str, value: i64| initializer(name, &Tensor::i64(vec![], vec![value]).unwrap());
        network(
            nodes,
            [zero_and_one(), vec![scalar("start", 0), scalar("step", step)]].concat(),
        )
    };
    admit(counted(1)).unwrap();
    refused(counted(2), &["Range", "steps of 1"]);
    let vanishing = vec![
        node("Squeeze", &["x"], &["sq"]),
        node("Add", &["x", "sq"], &["y"]),
    ];
    refused(of_opset(11, &[4], vanishing, vec![]), &["Squeeze"]);
}

/// If the arithmetic differed from the engine's, a difference of 1 could be multiplied to an arbitrary size.
#[test]
fn shape_arithmetic_has_the_digits_of_its_type() {
    let filled = |nodes: Vec<NodeProto>, weights: Vec<TensorProto>| {
        let mut nodes = nodes;
        nodes.push(node("Cast", &["v"], &["m"]).with([int("to", 7)]));
        nodes.push(node("ConstantOfShape", &["m"], &["c"]));
        nodes.push(node("ReduceSum", &["c"], &["r"]));
        nodes.push(node("Add", &["x", "r"], &["y"]));
        network(nodes, weights)
    };
    // 2^32 + 8 becomes 8 in 32 bits.
    let wraps = vec![node("Cast", &["w"], &["v"]).with([int("to", data_type::INT32.into())])];
    refused(
        filled(wraps, vec![integers("w", &[(1 << 32) + 8])]),
        &["ConstantOfShape", "depends on"],
    );
    // 2^24 + 1 becomes 2^24 in single precision, so the difference is 2.
    let rounds = vec![
        node("Cast", &["w"], &["f"]).with([int("to", 1)]),
        node("Sub", &["f", "g"], &["v"]),
    ];
    let sixteen_million = initializer("g", &Tensor::f32(vec![1], vec![16_777_214.0]).unwrap());
    let taken = admit(filled(
        rounds,
        vec![integers("w", &[(1 << 24) + 1]), sixteen_million],
    ))
    .unwrap();
    assert_eq!(taken.shapes(1).unwrap().dims("c"), Some(&[2][..]));
    let overflow = vec![node("Mul", &["f", "f"], &["v"])];
    let huge = initializer("f", &Tensor::f32(vec![1], vec![1e30]).unwrap());
    refused(filled(overflow, vec![huge]), &["ConstantOfShape", "depends on"]);
    let remainder = vec![node("Mod", &["a", "b"], &["v"]).with([int("fmod", 1)])];
    let numbers = vec![integers("a", &[-7]), integers("b", &[3])];
    refused(filled(remainder, numbers), &["ConstantOfShape", "depends on"]);
}

/// All models sent by the isolation suite.
#[test]
fn every_hostile_model_is_refused() {
    for hostile in frostline_hostile::models() {
        let error = admit(hostile.file).expect_err(hostile.name).to_string();
        let named = hostile.expected_fragments.iter().all(|word| error.contains(word));
        assert!(named && error.len() < 1000, "{}: {error}", hostile.name);
    }
}

/// PyTorch computes paddings as pairs, starting with the last axis. The nodes reshape, reverse and transpose
/// them.
#[test]
fn a_padding_that_is_computed_is_known() {
    let nodes = vec![
        node("Reshape", &["pairs", "two"], &["rows"]),
        node(
            "Slice",
            &["rows", "last", "before", "zero", "back"],
            &["reversed"],
        ),
        node("Transpose", &["reversed"], &["columns"]).with([ints("perm", &[1, 0])]),
        node("Reshape", &["columns", "flat"], &["pads"]),
        node("Pad", &["x", "pads"], &["wide"]),
        node("ReduceSum", &["wide"], &["sum"]),
        node("Add", &["x", "sum"], &["y"]),
    ];
    let weights = vec![
        integers("pairs", &[1, 2, 0, 0]),
        integers("two", &[-1, 2]),
        integers("last", &[-1]),
        integers("before", &[i64::MIN + 1]),
        integers("zero", &[0]),
        integers("back", &[-1]),
        integers("flat", &[-1]),
    ];
    let model = admit(network(nodes, weights)).unwrap();
    let shapes = model.shapes(2).unwrap();
    assert_eq!(shapes.integers("pads"), Some(&[0, 1, 0, 2][..]));
    assert_eq!(shapes.dims("wide"), Some(&[2, 7][..]));
}

/// The tensor is empty, but iterating over an axis would take years.
#[test]
fn an_endless_tensor_without_elements_is_refused() {
    let nodes = vec![
        node("ConstantOfShape", &["none"], &["empty"]),
        node("Transpose", &["empty"], &["turned"]),
        node("Slice", &["turned", "zero", "one", "one"], &["cut"]),
        node("ReduceSum", &["cut"], &["sum"]),
        node("Add", &["x", "sum"], &["y"]),
    ];
    let weights = [zero_and_one(), vec![integers("none", &[0, 1 << 40])]].concat();
    refused(network(nodes, weights), &["`empty`", "axis of size 0"]);
}

mod needs_shared {
    use super::*;

    #[test]
    fn a_bound_holds_for_every_batch() {
        let bytes = |model: &Model, batch: usize| -> u64 {
            let shapes = model.shapes(batch).unwrap();
            let names = model.inputs().map(|input| &input.name);
            let names = names.chain(model.nodes().iter().flat_map(|node| &node.output));
            let size = |name: &String| {
                let shape = shapes.get(name)?;
                let width =
                    crate::tensors::dtype_of(shape.data_type).map_or(1, frostline_tensor::DType::size);
                Some((shape.dims.iter().product::<usize>() * width) as u64)
            };
            names.filter_map(size).sum()
        };
        for name in [
            "alexnet",
            "resnet18",
            "resnet50",
            "vgg11",
            "vgg19",
            "densenet121",
            "vit_b_16",
        ] {
            for opset in ["opset17", "opset20"] {
                let model = skeleton(&format!("{name}.{opset}"));
                let Footprint {
                    largest,
                    alive,
                    total,
                } = model.footprint().unwrap();
                for batch in [1, 2, 7, 64, 5000] {
                    let most = total.fixed + total.per_sample * batch as u64;
                    assert_eq!(bytes(&model, batch), most, "{name}.{opset} at {batch}");
                }
                assert!(
                    largest.for_one_sample() < alive.for_one_sample()
                        && alive.for_one_sample() <= total.for_one_sample()
                );
            }
        }
        let squeezenet = squeezenet("squeezenet1_1.onnx");
        assert!(squeezenet.footprint().unwrap().alive.for_one_sample() < 20 << 20);
    }
}
