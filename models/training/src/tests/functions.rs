//! Gradients of functions, choices and reductions, compared with central differences in `f64`.

use super::harness::{Net, check, check_in_f32, random, tensor, values};
use frostline_graph::build::{int, ints, node, text};
use frostline_graph::onnx::NodeProto;
use frostline_tensor::DType;

const ROW: [usize; 3] = [2, 4, 3];

/// Applies the node to the probed row `h`. The result is `y`.
fn row(node: NodeProto, features: usize) -> Net {
    Net::new(&ROW).probed(&ROW).node(node).classified("y", features)
}

/// Like [`row`], with positive elements in `h`.
fn positive(node: NodeProto) -> Net {
    Net::new(&ROW)
        .weight("probe", &ROW)
        .stored("offset", &tensor(&[1], DType::F64, vec![0.3]))
        .op("Mul", &["x", "probe"], "product")
        .op("Mul", &["product", "product"], "square")
        .op("Add", &["square", "offset"], "h")
        .node(node)
        .classified("y", 24)
}

#[test]
fn functions_of_one_number() {
    for operator in ["Abs", "Exp", "Neg"] {
        check(row(node(operator, &["h"], &["y"]), 24));
    }
    for operator in ["Log", "Reciprocal", "Sqrt"] {
        check(positive(node(operator, &["h"], &["y"])));
    }
    let gelu = node("Gelu", &["h"], &["y"]).with([text("approximate", "tanh")]);
    check(row(gelu, 24).opset(20));
}

#[test]
fn the_gaussian_in_single_precision() {
    for (operator, opset) in [("Erf", 18), ("Gelu", 20)] {
        let net = Net::of(&ROW, DType::F32).probed(&ROW).op(operator, &["h"], "y");
        check_in_f32(net.classified("y", 24).opset(opset));
    }
}

#[test]
fn powers() {
    for exponent in [2.0, 3.0, 0.5, -1.5] {
        let net = positive(node("Pow", &["h", "p"], &["y"]));
        check(net.stored("p", &tensor(&[], DType::F64, vec![exponent])));
    }
    check(row(node("Pow", &["h", "p"], &["y"]), 24).ints("p", &[2]));
}

#[test]
fn reductions() {
    for operator in [
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSumExp",
    ] {
        let kept = node(operator, &["h", "axes"], &["y"]);
        check(row(kept, 4).ints("axes", &[-1, 1]));
        let dropped = node(operator, &["h", "axes"], &["y"]).with([int("keepdims", 0)]);
        check(row(dropped, 6).ints("axes", &[2]));
    }
    let older = node("ReduceMax", &["h"], &["y"]).with([ints("axes", &[2])]);
    check(row(older, 6).opset(17));
    let none = node("ReduceSum", &["h", "axes"], &["y"]).with([int("noop_with_empty_axes", 1)]);
    check(row(none, 24).ints("axes", &[]));
}

#[test]
fn choices() {
    for operator in ["Max", "Min"] {
        check(row(node(operator, &["h", "w"], &["y"]), 24).weight("w", &[4, 1]));
    }
    let mask = tensor(&[4, 3], DType::F64, values(&random(&[4, 3], DType::F64, 2)));
    let net = Net::new(&ROW)
        .probed(&ROW)
        .weight("w", &[2, 1, 1])
        .stored("mask", &mask)
        .stored("zero", &tensor(&[], DType::F64, vec![0.0]))
        .op("Greater", &["mask", "zero"], "condition")
        .op("Where", &["condition", "h", "w"], "y");
    check(net.classified("y", 24));
}

#[test]
fn softmax_and_its_logarithm() {
    for operator in ["Softmax", "LogSoftmax"] {
        for axis in [1, 2, -1] {
            let newer = node(operator, &["h"], &["y"]).with([int("axis", axis)]);
            check(row(newer, 24));
            let older = node(operator, &["h"], &["y"]).with([int("axis", axis)]);
            check(row(older, 24).opset(12));
        }
    }
}
