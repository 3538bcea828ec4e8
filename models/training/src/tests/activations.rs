//! Gradients of activations, compared with central differences, also in rows after a convolution.

use super::harness::{Net, check};
use frostline_graph::build::{float, node};
use frostline_graph::onnx::NodeProto;

const IMAGE: [usize; 3] = [2, 6, 5];

/// Checks `node` on an image with elements from -4 to 4, which cover all kinks.
fn activation(node: NodeProto) {
    let net = Net::new(&IMAGE)
        .weight("a", &IMAGE)
        .weight("b", &IMAGE)
        .op("Mul", &["x", "a"], "p")
        .op("Add", &["p", "b"], "s")
        .op("Add", &["s", "s"], "h");
    check(net.node(node).classified("y", 60));
}

#[test]
fn each_has_its_slope() {
    for operator in [
        "Celu",
        "Elu",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "Selu",
        "Softplus",
        "Softsign",
    ] {
        activation(node(operator, &["h"], &["y"]));
    }
}

#[test]
fn settings_are_kept() {
    activation(node("Celu", &["h"], &["y"]).with([float("alpha", 0.6)]));
    activation(node("Elu", &["h"], &["y"]).with([float("alpha", 0.7)]));
    activation(node("HardSigmoid", &["h"], &["y"]).with([float("alpha", 0.3), float("beta", 0.4)]));
    activation(node("Selu", &["h"], &["y"]).with([float("alpha", 1.2), float("gamma", 0.9)]));
}

#[test]
fn swish_is_an_operator_since_24() {
    for alpha in [1.0, 1.7] {
        let swish = node("Swish", &["h"], &["y"]).with([float("alpha", alpha)]);
        let net = Net::new(&IMAGE).opset(24).probed(&IMAGE).node(swish);
        check(net.classified("y", 60));
    }
}

#[test]
fn a_slope_is_one_or_one_for_each_channel() {
    for shape in [&[1][..], &[2, 1, 1], &[6, 1], &[2, 6, 5]] {
        let net = Net::new(&IMAGE).probed(&IMAGE).weight("slope", shape);
        check(net.op("PRelu", &["h", "slope"], "y").classified("y", 60));
    }
    for shape in [&[1][..], &[3, 1, 1], &[4]] {
        let net = Net::new(&IMAGE).weight("w", &[3, 2, 2, 2]).weight("slope", shape);
        let net = net.op("Conv", &["x", "w"], "c");
        check(net.op("PRelu", &["c", "slope"], "y").classified("y", 60));
    }
}
