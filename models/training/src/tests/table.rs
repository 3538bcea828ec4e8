//! Properties of differentiable operators in the operator table of the graph: version, shape, rows, work and
//! growth.

use super::harness::{Net, PLAIN, weights};
use crate::TrainingGraph;
use crate::rules::RULES;
use frostline_graph::build::{int, ints, node, text};
use frostline_graph::onnx::{AttributeProto, data_type};
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::Tensor;

const IMAGE: [usize; 3] = [2, 6, 5];

/// Returns a network in which `operator` computes `y` from `h`.
fn example(operator: &str) -> Net {
    let net = |inputs: &[&str], attributes: Vec<AttributeProto>, features| {
        let inputs = [&["h"], inputs].concat();
        Net::new(&IMAGE)
            .probed(&IMAGE)
            .node(node(operator, &inputs, &["y"]).with(attributes))
            .classified("y", features)
    };
    match operator {
        "Add" | "Sub" | "Mul" | "Div" => net(&["w"], vec![], 60).weight("w", &[2, 1, 1]),
        "AveragePool" | "MaxPool" => net(&[], vec![ints("kernel_shape", &[2, 2])], 40),
        "BatchNormalization" => ["scale", "bias", "mean", "variance"].iter().fold(
            net(&["scale", "bias", "mean", "variance"], vec![], 60),
            |net, name| net.weight(name, &[2]),
        ),
        "Attention" => net(&["h", "h"], vec![], 60).opset(23),
        "CastLike" => net(&["like"], vec![], 60).stored(
            "like",
            &super::harness::random(&[1], frostline_tensor::DType::F64, 1),
        ),
        "Cast" => net(&[], vec![int("to", data_type::DOUBLE.into())], 60),
        "Concat" => net(&["h"], vec![int("axis", 1)], 120),
        "Conv" => net(&["w"], vec![], 60).weight("w", &[2, 2, 1, 1]),
        "Gemm" => Net::new(&[4])
            .probed(&[4])
            .weight("w", &[4, 3])
            .op("Gemm", &["h", "w"], "y")
            .classified("y", 3),
        "DepthToSpace" => moved("DepthToSpace", &[4, 3, 5]),
        "GlobalAveragePool" | "GlobalMaxPool" => net(&[], vec![], 2),
        "GroupNormalization" => net(&["s", "b"], vec![int("num_groups", 1)], 60)
            .opset(21)
            .weight("s", &[2])
            .weight("b", &[2]),
        "InstanceNormalization" => net(&["s", "b"], vec![], 60).weight("s", &[2]).weight("b", &[2]),
        "LRN" => net(&[], vec![int("size", 3)], 60),
        "Pad" => net(&["pads"], vec![], 80).ints("pads", &[0, 0, 1, 0, 0, 0, 1, 0]),
        "PRelu" => net(&["slope"], vec![], 60).weight("slope", &[2, 1, 1]),
        "Resize" => net(&["", "scales"], vec![], 240).stored("scales", &doubled()),
        "SpaceToDepth" => moved("SpaceToDepth", &[1, 6, 4]),
        "Swish" => net(&[], vec![], 60).opset(24),
        "Einsum" => net(&["h"], vec![text("equation", "nchw,nckw->nchk")], 72),
        "Expand" => net(&["to"], vec![], 60).ints("to", &[1, 1, 6, 1]),
        "Gather" => net(&["places"], vec![int("axis", 2)], 30).ints("places", &[2, 0, -1]),
        "GatherElements" | "GatherND" => looked_up(operator),
        "ScatterND" => overwritten(),
        "Gelu" => net(&[], vec![], 60).opset(20),
        "MatMul" => net(&["w"], vec![], 48).weight("w", &[5, 4]),
        "LayerNormalization" => net(&["scale"], vec![], 60).weight("scale", &[5]),
        "Max" | "Min" => net(&["w"], vec![], 60).weight("w", &[5]),
        "Pow" => net(&["two"], vec![], 60).ints("two", &[2]),
        "RMSNormalization" => net(&["scale"], vec![], 60).weight("scale", &[5]).opset(23),
        _ if operator.starts_with("Reduce") => net(&["axes"], vec![], 2).ints("axes", &[2, 3]),
        "Reshape" => net(&["to"], vec![], 60).ints("to", &[0, 4, -1]),
        "Slice" => net(&["starts", "ends", "axes"], vec![], 36)
            .ints("starts", &[1])
            .ints("ends", &[4])
            .ints("axes", &[3]),
        "Split" => Net::new(&IMAGE)
            .probed(&IMAGE)
            .ints("sizes", &[3, 2])
            .node(node("Split", &["h", "sizes"], &["y", "rest"]).with([int("axis", 3)]))
            .classified("y", 36),
        "Squeeze" => Net::new(&IMAGE)
            .probed(&IMAGE)
            .ints("axes", &[1])
            .op("Unsqueeze", &["h", "axes"], "wide")
            .op("Squeeze", &["wide", "axes"], "y")
            .classified("y", 60),
        "Tile" => net(&["times"], vec![], 120).ints("times", &[1, 2, 1, 1]),
        "Transpose" => net(&[], vec![ints("perm", &[0, 2, 3, 1])], 60),
        "Unsqueeze" => net(&["axes"], vec![], 60).ints("axes", &[1]),
        "Where" => Net::new(&IMAGE)
            .probed(&IMAGE)
            .weight("w", &[5])
            .op("Greater", &["w", "w"], "condition")
            .op("Where", &["condition", "w", "h"], "y")
            .classified("y", 60),
        _ => net(&[], vec![], 60),
    }
}

/// Moves blocks of 2 x 2 between channels and positions.
fn moved(operator: &str, row: &[usize; 3]) -> Net {
    let blocks = node(operator, &["h"], &["y"]).with([int("blocksize", 2)]);
    let features = row.iter().product();
    Net::new(row).probed(row).node(blocks).classified("y", features)
}

/// Returns the scales for doubling height and width.
fn doubled() -> Tensor {
    Tensor::f32([4], vec![1.0, 1.0, 2.0, 2.0]).unwrap()
}

/// Returns a network that adds elements which `operator` looks up in a weight.
fn looked_up(operator: &str) -> Net {
    Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("scale", &[4, 1])
        .op("Mul", &["scale", "scale"], "table")
        .ints("list", &[3, 0])
        .ints("column", &[2, 1])
        .op("Reshape", &["list", "column"], "places")
        .op(operator, &["table", "places"], "bias")
        .ints("to", &[2, 1, 1])
        .op("Reshape", &["bias", "to"], "shift")
        .op("Add", &["h", "shift"], "y")
        .classified("y", 60)
}

/// Returns a network that adds a weight of which two elements are overwritten with those of another weight.
pub(super) fn overwritten() -> Net {
    Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("scale", &[5])
        .op("Mul", &["scale", "scale"], "table")
        .weight("small", &[2])
        .op("Mul", &["small", "small"], "updates")
        .ints("list", &[3, 0])
        .ints("column", &[2, 1])
        .op("Reshape", &["list", "column"], "places")
        .op("ScatterND", &["table", "places", "updates"], "shift")
        .op("Add", &["h", "shift"], "y")
        .classified("y", 60)
}

#[test]
fn differentiable_operators_are_admitted_and_trained() {
    for (operator, _) in RULES {
        let bytes = example(operator).model().to_bytes().unwrap();
        let model = Model::admit(bytes.into(), &ModelLimits::default())
            .unwrap_or_else(|error| panic!("{operator} is not admitted: {error}"));
        assert!(model.nodes().iter().any(|node| node.op_type == *operator));
        let network = model.network().unwrap();
        let share = |name| network.cut(name).map(|cut| cut.compute_share);
        match (share("h"), share("y")) {
            (Ok(before), Ok(after)) => assert!(before < after, "missing work of operator {operator}"),
            other => panic!("operator {operator} mixes rows or has an unknown shape: {other:?}"),
        }
        TrainingGraph::build(&model, 3, PLAIN)
            .unwrap_or_else(|error| panic!("{operator} is not trained: {error}"));
    }
}

#[test]
fn the_operator_table_defines_weights() {
    let net = Net::new(&[4])
        .weight("w", &[4, 1])
        .weight("bias", &[1])
        .weight("factor", &[1])
        .op("MatMul", &["x", "w"], "product")
        .op("Add", &["product", "bias"], "shifted")
        .op("Mul", &["shifted", "factor"], "logits");
    let graph = TrainingGraph::build(&net.model(), 3, PLAIN).unwrap();
    assert_eq!(weights(&graph.state), ["w", "bias"]);
    let token = Net::new(&[2, 5])
        .weight("token", &[3, 1, 5])
        .node(node("Concat", &["x", "token"], &["y"]).with([int("axis", 1)]));
    let graph = TrainingGraph::build(&token.classified("y", 15).model(), 3, PLAIN).unwrap();
    assert_eq!(weights(&graph.state), ["token", "head"]);
}
