//! Gradients of all rules, compared with central differences in `f64`.

use super::harness::{Net, check, check_elements, random, tensor, values};
use frostline_graph::build::{self, float, int, ints, node, text};
use frostline_graph::onnx::{AttributeProto, NodeProto};
use frostline_tensor::{DType, Tensor};

const IMAGE: [usize; 3] = [2, 6, 5];

/// Applies the node to the probed image `h`. The result is `y`, with `features` numbers per row.
fn image(node: NodeProto, features: usize) -> Net {
    Net::new(&IMAGE)
        .probed(&IMAGE)
        .node(node)
        .classified("y", features)
}

fn conv(attributes: impl IntoIterator<Item = AttributeProto>, kernel: [usize; 2], positions: usize) {
    let net = image(
        node("Conv", &["h", "w", "b"], &["y"]).with(attributes),
        3 * positions,
    );
    check(net.weight("w", &[3, 2, kernel[0], kernel[1]]).weight("b", &[3]));
}

#[test]
fn conv_with_padding() {
    conv([ints("pads", &[1, 1, 1, 1])], [3, 3], 30);
}

#[test]
fn conv_without_padding() {
    conv([], [3, 2], 16);
}

#[test]
fn conv_one_by_one() {
    conv([ints("kernel_shape", &[1, 1])], [1, 1], 30);
}

#[test]
fn conv_one_by_one_with_stride() {
    conv([ints("strides", &[2, 2])], [1, 1], 9);
}

#[test]
fn conv_with_stride_and_padding() {
    conv([ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])], [3, 3], 9);
}

#[test]
fn conv_with_stride_beyond_its_kernel() {
    conv([ints("strides", &[3, 2])], [2, 1], 6);
}

#[test]
fn conv_with_uneven_padding() {
    conv([ints("pads", &[0, 2, 1, 0])], [3, 3], 25);
}

#[test]
fn conv_with_dilations() {
    conv(
        [ints("dilations", &[2, 1]), ints("pads", &[2, 1, 2, 1])],
        [3, 3],
        30,
    );
}

#[test]
fn conv_padded_automatically() {
    for (mode, positions) in [("SAME_UPPER", 9), ("SAME_LOWER", 9), ("VALID", 4)] {
        conv(
            [ints("strides", &[2, 2]), text("auto_pad", mode)],
            [3, 3],
            positions,
        );
    }
}

#[test]
fn conv_of_one_axis() {
    let net = Net::new(&[2, 9]).probed(&[2, 9]).weight("w", &[3, 2, 3]);
    let strided = node("Conv", &["h", "w"], &["y"]).with([ints("strides", &[2]), ints("pads", &[1, 1])]);
    check(net.node(strided).classified("y", 15));
}

#[test]
fn conv_in_parts() {
    let row = [16, 48, 48];
    let padded = || [ints("pads", &[1, 1, 1, 1])];
    let net = Net::new(&row)
        .weight("w1", &[16, 16, 3, 3])
        .weight("w2", &[4, 16, 3, 3])
        .node(node("Conv", &["x", "w1"], &["c1"]).with(padded()))
        .op("Relu", &["c1"], "r1")
        .node(node("Conv", &["r1", "w2"], &["c2"]).with(padded()))
        .op("GlobalAveragePool", &["c2"], "p")
        .classified("p", 4);
    check_elements(&net.model(), 51, 3);
}

#[test]
fn residual_block() {
    let padded = || [ints("pads", &[1, 1, 1, 1])];
    let net = Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("w1", &[2, 2, 3, 3])
        .weight("b1", &[2])
        .weight("w2", &[2, 2, 3, 3])
        .node(node("Conv", &["h", "w1", "b1"], &["c1"]).with(padded()))
        .op("Relu", &["c1"], "r1")
        .node(node("Conv", &["r1", "w2"], &["c2"]).with(padded()))
        .op("Add", &["c2", "h"], "s")
        .op("Relu", &["s"], "r2")
        .op("GlobalAveragePool", &["r2"], "p")
        .classified("p", 2);
    check(net);
}

#[test]
fn fire_module() {
    let wide = node("Conv", &["s", "w3"], &["c3"]).with([ints("pads", &[1, 1, 1, 1])]);
    let net = Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("w0", &[3, 2, 1, 1])
        .weight("w1", &[2, 3, 1, 1])
        .weight("w3", &[4, 3, 3, 3])
        .op("Conv", &["h", "w0"], "c0")
        .op("Relu", &["c0"], "s")
        .op("Conv", &["s", "w1"], "c1")
        .node(wide)
        .node(node("Concat", &["c1", "c3"], &["y"]).with([int("axis", 1)]))
        .node(node("MaxPool", &["y"], &["z"]).with([ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2])]))
        .classified("z", 6 * 4);
    check(net);
}

#[test]
fn a_weight_used_twice() {
    let padded = || [ints("pads", &[1, 1, 1, 1])];
    let net = Net::new(&IMAGE)
        .weight("w", &[2, 2, 3, 3])
        .node(node("Conv", &["x", "w"], &["c1"]).with(padded()))
        .node(node("Conv", &["c1", "w"], &["y"]).with(padded()))
        .classified("y", 60);
    check(net);
}

#[test]
fn max_pool() {
    let size = |kernel: i64, stride: i64| {
        [
            ints("kernel_shape", &[kernel, kernel]),
            ints("strides", &[stride, stride]),
        ]
    };
    check(image(node("MaxPool", &["h"], &["y"]).with(size(2, 2)), 2 * 6));
    check(image(node("MaxPool", &["h"], &["y"]).with(size(3, 1)), 2 * 12));
    let rounded_up = node("MaxPool", &["h"], &["y"])
        .with(size(3, 2))
        .with([int("ceil_mode", 1)]);
    check(image(rounded_up, 2 * 6));
    let padded = node("MaxPool", &["h"], &["y"])
        .with(size(3, 2))
        .with([ints("pads", &[1, 1, 1, 1])]);
    check(image(padded, 2 * 9));
}

#[test]
fn average_pool() {
    let size = |kernel: i64, stride: i64| {
        [
            ints("kernel_shape", &[kernel, kernel]),
            ints("strides", &[stride, stride]),
        ]
    };
    check(image(node("AveragePool", &["h"], &["y"]).with(size(2, 2)), 2 * 6));
    check(image(node("AveragePool", &["h"], &["y"]).with(size(1, 1)), 60));
    for include in [0, 1] {
        let padded = node("AveragePool", &["h"], &["y"])
            .with(size(3, 2))
            .with([ints("pads", &[1, 1, 1, 1]), int("count_include_pad", include)]);
        check(image(padded, 2 * 9));
    }
}

#[test]
fn means() {
    check(image(node("GlobalAveragePool", &["h"], &["y"]), 2));
    let kept = node("ReduceMean", &["h"], &["y"]).with([ints("axes", &[-1, -2])]);
    check(image(kept, 2).opset(17));
    let dropped = node("ReduceMean", &["h"], &["y"]).with([ints("axes", &[1]), int("keepdims", 0)]);
    check(image(dropped, 30).opset(17));
    check(image(node("ReduceMean", &["h", "axes"], &["y"]), 2).ints("axes", &[2, 3]));
    let after_conv = Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("w", &[3, 2, 2, 2])
        .op("Conv", &["h", "w"], "c")
        .ints("axes", &[-1, -2])
        .node(node("ReduceMean", &["c", "axes"], &["y"]).with([int("keepdims", 0)]))
        .classified("y", 3);
    check(after_conv);
}

#[test]
fn gemm_with_every_flag() {
    for (flip_left, flip_right, bias) in [
        (0, 0, vec![4]),
        (0, 1, vec![1, 4]),
        (1, 0, vec![3, 1]),
        (1, 1, vec![3, 4]),
        (0, 1, vec![]),
    ] {
        let left = ["h", "ht"][flip_left];
        let right = [[5, 4], [4, 5]][flip_right];
        let gemm = node("Gemm", &[left, "w", "b"], &["y"]).with([
            float("alpha", 0.7),
            float("beta", 1.3),
            int("transA", flip_left as i64),
            int("transB", flip_right as i64),
        ]);
        let net = Net::new(&[5]).probed(&[5]).weight("w", &right).weight("b", &bias);
        check(net.op("Transpose", &["h"], "ht").node(gemm).classified("y", 4));
    }
}

#[test]
fn matmul() {
    let plain = Net::new(&[5]).probed(&[5]).weight("w", &[5, 4]).weight("b", &[4]);
    check(
        plain
            .op("MatMul", &["h", "w"], "m")
            .op("Add", &["m", "b"], "y")
            .classified("y", 4),
    );
    let rows = Net::new(&[4, 5]).probed(&[4, 5]).weight("w", &[5, 3]);
    check(rows.op("MatMul", &["h", "w"], "y").classified("y", 12));
    let stacked = Net::new(&[2, 4, 5]).probed(&[2, 4, 5]).weight("w", &[2, 5, 3]);
    check(stacked.op("MatMul", &["h", "w"], "y").classified("y", 24));
    let attention = Net::new(&[4, 5]).probed(&[4, 5]).weight("w", &[5, 5]);
    let flipped = node("Transpose", &["q"], &["qt"]).with([ints("perm", &[0, 2, 1])]);
    let attention = attention
        .op("MatMul", &["h", "w"], "q")
        .node(flipped)
        .op("MatMul", &["h", "qt"], "scores")
        .op("Softmax", &["scores"], "shares")
        .op("MatMul", &["shares", "h"], "y");
    check(attention.classified("y", 20));
}

#[test]
fn a_weight_behind_a_transpose() {
    let net = Net::new(&[5])
        .weight("w", &[3, 5])
        .op("Identity", &["w"], "alias")
        .op("Transpose", &["alias"], "wt");
    check(net.op("MatMul", &["x", "wt"], "logits"));
}

/// Returns a weight away from zero, for well-conditioned quotients.
fn divisor(shape: &[usize]) -> Tensor {
    let numbers = values(&random(shape, DType::F64, 3))
        .into_iter()
        .map(|number| number + 2.0);
    tensor(shape, DType::F64, numbers.collect())
}

#[test]
fn arithmetic_with_broadcasting() {
    for operator in ["Add", "Sub", "Mul", "Div"] {
        for shape in [&[2, 6, 5][..], &[2, 1, 1], &[1, 2, 1, 1], &[5], &[6, 1], &[1, 1]] {
            let net = image(node(operator, &["h", "w"], &["y"]), 60);
            check(net.stored("w", &divisor(shape)));
        }
        let four = tensor(&[1], DType::F64, vec![4.0]);
        let shifted = Net::new(&IMAGE)
            .probed(&IMAGE)
            .stored("four", &four)
            .op("Add", &["h", "four"], "h4");
        let flipped = shifted
            .stored("w", &divisor(&[2, 1, 1]))
            .op(operator, &["w", "h4"], "y");
        check(flipped.classified("y", 60));
    }
}

#[test]
fn arithmetic_between_rows_and_broadcast_weights() {
    for operator in ["Add", "Sub", "Mul", "Div"] {
        for shape in [&[3, 1, 1][..], &[1, 3, 1, 1], &[3, 5, 4], &[4], &[1, 1]] {
            let net = Net::new(&IMAGE)
                .probed(&IMAGE)
                .weight("w", &[3, 2, 2, 2])
                .stored("s", &divisor(shape))
                .op("Conv", &["h", "w"], "c");
            check(net.op(operator, &["c", "s"], "y").classified("y", 60));
        }
    }
}

#[test]
fn elementwise() {
    check(image(node("Relu", &["h"], &["y"]), 60));
    check(image(
        node("LeakyRelu", &["h"], &["y"]).with([float("alpha", 0.2)]),
        60,
    ));
    check(image(node("Sigmoid", &["h"], &["y"]), 60));
    check(image(node("Tanh", &["h"], &["y"]), 60));
    check(image(node("Softmax", &["h"], &["y"]).with([int("axis", 1)]), 60));
    let bound = |value: f64| tensor(&[], DType::F64, vec![value]);
    let clip = || image(node("Clip", &["h", "low", "high"], &["y"]), 60);
    check(clip().stored("low", &bound(-0.3)).stored("high", &bound(0.25)));
    let above = image(node("Clip", &["h", "", "high"], &["y"]), 60);
    check(above.stored("high", &bound(0.1)));
}

#[test]
fn movement() {
    check(image(
        node("Transpose", &["h"], &["y"]).with([ints("perm", &[0, 2, 3, 1])]),
        60,
    ));
    check(image(node("Reshape", &["h", "to"], &["y"]), 60).ints("to", &[0, 4, -1]));
    check(image(node("Flatten", &["h"], &["y"]).with([int("axis", -3)]), 60));
    check(image(node("Unsqueeze", &["h", "axes"], &["y"]), 60).ints("axes", &[1]));
    check(image(node("Identity", &["h"], &["y"]), 60));
    check(image(node("Dropout", &["h"], &["y"]), 60));
    let double = i64::from(frostline_graph::onnx::data_type::DOUBLE);
    check(image(node("Cast", &["h"], &["y"]).with([int("to", double)]), 60));
    for axis in [1, 2, -1] {
        check(image(
            node("Concat", &["h", "x", "h"], &["y"]).with([int("axis", axis)]),
            180,
        ));
    }
    let squeezed = Net::new(&IMAGE)
        .probed(&IMAGE)
        .op("GlobalAveragePool", &["h"], "p")
        .node(node("Squeeze", &["p"], &["y"]).with([ints("axes", &[2, 3])]))
        .classified("y", 2);
    check(squeezed.opset(11));
}

#[test]
fn batch_normalization() {
    let statistics = |net: Net, channels: usize| {
        let variance = (0..channels).map(|channel| 0.5 + channel as f64).collect();
        let mean = (0..channels).map(|channel| channel as f64 - 0.7).collect();
        net.stored("mean", &tensor(&[channels], DType::F64, mean))
            .stored("variance", &tensor(&[channels], DType::F64, variance))
            .weight("scale", &[channels])
            .weight("bias", &[channels])
    };
    let bn = |input| {
        node(
            "BatchNormalization",
            &[input, "scale", "bias", "mean", "variance"],
            &["y"],
        )
        .with([build::float("epsilon", 1e-3)])
    };
    check(statistics(image(bn("h"), 60), 2));
    let after_conv = Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("w", &[3, 2, 2, 2])
        .op("Conv", &["h", "w"], "c");
    check(statistics(after_conv.node(bn("c")).classified("y", 60), 3));
}
