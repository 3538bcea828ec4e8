//! Untrusted bytes must not cause panics, long execution times or high memory use.

use super::support::noisy;
use crate::Model;
use crate::build::{batched, initializer, int, integers, ints, model, node};
use crate::onnx::{GraphProto, NodeProto, data_type};
use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

fn valid() -> Vec<u8> {
    let graph = GraphProto {
        node: vec![
            node("Conv", &["x", "k"], &["c"]).with([ints("pads", &[1, 1, 1, 1]), ints("strides", &[1, 1])]),
            node("Shape", &["c"], &["s"]),
            node("Gather", &["s", "i"], &["n"]).with([int("axis", 0)]),
            node("Concat", &["n", "m"], &["t"]).with([int("axis", 0)]),
            node("Reshape", &["c", "t"], &["r"]),
            node("Slice", &["r", "i", "m"], &["l"]),
            node("Gemm", &["r", "w"], &["y"]),
        ],
        initializer: vec![
            initializer("k", &noisy(1, &[2, 3, 3, 3])),
            initializer("w", &noisy(2, &[32, 5])),
            integers("i", &[0]),
            integers("m", &[-1]),
        ],
        input: vec![batched("x", &[3, 4, 4])],
        output: vec![batched("y", &[5])],
        ..GraphProto::default()
    };
    model(17, graph).encode_to_vec()
}

/// Calls all functions that are used with untrusted models.
fn exercise(bytes: Vec<u8>) {
    let Ok(model) = Model::from_bytes(Bytes::from(bytes)) else {
        return;
    };
    let _ = model.parameters();
    let _ = model.replace_head(3, 1);
    let Ok(network) = model.network() else { return };
    for cut in network.cuts.iter().take(4) {
        let _ = model.slice(None, Some(&cut.name)).map(|part| part.to_bytes());
        let _ = model.slice(Some(&cut.name), None).map(|part| part.to_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn damaged_models_never_panic(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = valid();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        exercise(bytes);
    }

    #[test]
    fn odd_attributes_never_panic(
        operator in prop::sample::select(vec![
            "Conv", "ConvTranspose", "MaxPool", "Gemm", "MatMul", "Reshape", "Slice", "Gather", "Split", "Pad", "Tile", "Expand",
            "Squeeze", "Unsqueeze", "Transpose", "Concat", "Flatten", "Softmax", "ReduceMean", "Range", "ConstantOfShape", "TopK",
            "DepthToSpace", "SpaceToDepth", "Resize", "OneHot", "Mod", "Div", "Pow", "LayerNormalization", "ArgMax", "Where",
        ]),
        value in prop::sample::select(vec![i64::MIN, -3, -1, 0, 1, 2, 7, i64::MAX]),
        values in prop::collection::vec(prop::sample::select(vec![i64::MIN, -2, -1, 0, 1, 3, i64::MAX]), 0..5),
        constant in any::<bool>(),
    ) {
        let names = ["axis", "axes", "pads", "strides", "dilations", "kernel_shape", "group", "perm", "split", "blocksize", "starts"];
        let attributes = names.iter().flat_map(|name| [int(name, value), ints(name, &values)]);
        let odd = node(operator, &[if constant { "v" } else { "x" }, "v", "v", "v"], &["o"]).with(attributes);
        let after = node("Add", &["o", "x"], &["y"]);
        let graph = GraphProto {
            node: vec![odd, after],
            initializer: vec![integers("v", &values)],
            input: vec![batched("x", &[3, 4])],
            output: vec![batched("y", &[3, 4])],
            ..GraphProto::default()
        };
        for opset in [9, 17] {
            exercise(model(opset, graph.clone()).encode_to_vec());
        }
    }
}

#[test]
fn the_undamaged_model_passes() {
    let model = Model::from_bytes(valid().into()).unwrap();
    let cuts: Vec<String> = model
        .network()
        .unwrap()
        .cuts
        .into_iter()
        .map(|cut| cut.name)
        .collect();
    assert_eq!(cuts, ["c", "r", "y"]);
}

/// Many nodes with large constants multiply the memory that the model claims.
#[test]
fn many_large_constants_take_no_memory() {
    let doubling = |index: usize| -> NodeProto {
        let from = format!("s{index}");
        let to = format!("s{}", index + 1);
        node("Concat", &[&from, &from], &[&to]).with([int("axis", 0)])
    };
    let mut nodes: Vec<NodeProto> = (0..50).map(doubling).collect();
    nodes.push(node("ConstantOfShape", &["s20"], &["huge"]));
    nodes.push(node("Relu", &["x"], &["y"]));
    let graph = GraphProto {
        node: nodes,
        initializer: vec![integers("s0", &[1 << 40])],
        input: vec![crate::build::value(
            "x",
            data_type::FLOAT,
            &[crate::build::Axis::batch(), crate::build::Axis::Fixed(2)],
        )],
        output: vec![batched("y", &[2])],
        ..GraphProto::default()
    };
    let model = Model::from_bytes(model(17, graph).encode_to_vec().into()).unwrap();
    assert_eq!(model.network().unwrap().cuts.len(), 1);
}
