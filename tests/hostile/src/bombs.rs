//! Small files with huge values or a huge amount of work.

use crate::HostileModel;
use crate::parts::{hostile, network};
use frostline_graph::build::{int, integers, ints, node};
use frostline_graph::onnx::{NodeProto, TensorProto, data_type};

pub(crate) fn all() -> Vec<HostileModel> {
    let huge = || integers("huge", &[1 << 20, 1 << 20]);
    vec![
        bomb(
            "constant-of-shape-bomb",
            vec![node("ConstantOfShape", &["huge"], &["bomb"])],
            vec![huge()],
            &["ConstantOfShape", "at most"],
        ),
        bomb(
            "expand-bomb",
            vec![
                node("ReduceSum", &["x"], &["one"]),
                node("Expand", &["one", "huge"], &["bomb"]),
            ],
            vec![huge()],
            &["Expand", "at most"],
        ),
        bomb(
            "tile-bomb",
            vec![node("Tile", &["x", "huge"], &["bomb"])],
            vec![huge()],
            &["Tile", "at most"],
        ),
        bomb(
            "pad-bomb",
            vec![node("Pad", &["x", "pads"], &["bomb"])],
            vec![integers("pads", &[0, 1 << 40, 0, 1 << 40])],
            &["Pad", "at most"],
        ),
        overflow(),
        sized_by_data(),
        cut_by_data(),
        unwritten_product(),
        one_batch(),
        squared_batch(),
        many_values(),
        slow_start(),
        endless_window(),
        endless_products(),
        slow_integers(),
    ]
}

/// Builds a network that sums the value `bomb`, which `nodes` compute.
fn bomb(
    name: &'static str,
    mut nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    named: &'static [&'static str],
) -> HostileModel {
    nodes.push(node("ReduceSum", &["bomb"], &["r"]).with([int("keepdims", 0)]));
    hostile(name, &network(nodes, weights), named)
}

/// Dimensions with a small product after overflow.
fn overflow() -> HostileModel {
    bomb(
        "overflowing-product",
        vec![node("ConstantOfShape", &["huge"], &["bomb"])],
        vec![integers("huge", &[1 << 62, 1 << 62, 4])],
        &["ConstantOfShape", "at most"],
    )
}

/// Number of elements that depends on the data.
fn sized_by_data() -> HostileModel {
    let nodes = vec![
        node("ReduceMax", &["x"], &["most"]),
        node("Reshape", &["most", "one"], &["only"]),
        node("Cast", &["only"], &["count"]).with([int("to", 7)]),
        node("ConstantOfShape", &["count"], &["bomb"]),
    ];
    bomb(
        "size-from-data",
        nodes,
        vec![integers("one", &[1])],
        &["ConstantOfShape", "depends on the data"],
    )
}

/// Reshape to a shape that depends on the data and may be empty.
fn cut_by_data() -> HostileModel {
    let nodes = vec![
        node("Cast", &["x"], &["count"]).with([int("to", 7)]),
        node("Reshape", &["x", "count"], &["bomb"]),
    ];
    bomb("cut-by-data", nodes, vec![], &["Reshape", "depends on the data"])
}

/// Matrix product over an axis of size 0. ONNX Runtime 1.31 does not initialize the output, so the result
/// would be uninitialized memory.
fn unwritten_product() -> HostileModel {
    let nodes = vec![
        node("Unsqueeze", &["x", "one"], &["rows"]),
        node("Slice", &["rows", "zero", "zero", "one"], &["none"]),
        node("MatMul", &["left", "none"], &["product"]),
        node("Squeeze", &["product", "one"], &["bomb"]),
    ];
    let mut left = integers("left", &[]);
    (left.dims, left.data_type) = (vec![1, 0], data_type::FLOAT);
    let weights = vec![left, integers("zero", &[0]), integers("one", &[1])];
    bomb("product-over-nothing", nodes, weights, &["axis of size 0"])
}

/// Harmless except for a batch of 8.
fn one_batch() -> HostileModel {
    let nodes = vec![
        node("Shape", &["x"], &["shape"]),
        node("Gather", &["shape", "zero"], &["batch"]),
        node("Equal", &["batch", "eight"], &["is"]),
        node("Where", &["is", "many", "one"], &["count"]),
        node("ConstantOfShape", &["count"], &["bomb"]),
    ];
    let weights = vec![
        integers("zero", &[0]),
        integers("one", &[1]),
        integers("eight", &[8]),
        integers("many", &[1 << 40]),
    ];
    bomb("bomb-at-a-batch-of-8", nodes, weights, &["Equal", "every batch"])
}

/// Quadratic in the batch size: harmless for 16 samples, but not for 100,000.
fn squared_batch() -> HostileModel {
    let nodes = vec![
        node("Transpose", &["x"], &["columns"]),
        node("MatMul", &["x", "columns"], &["bomb"]),
    ];
    bomb("squared-batch", nodes, vec![], &["MatMul", "square of the batch"])
}

/// 1,000 values of 16 MB. Each value is within the limit.
fn many_values() -> HostileModel {
    let mut nodes = vec![
        node("ReduceSum", &["x"], &["one"]),
        node("Expand", &["one", "large"], &["v0"]),
    ];
    for index in 0..1000 {
        nodes.push(node(
            "Neg",
            &[&format!("v{index}")],
            &[&format!("v{}", index + 1)],
        ));
    }
    nodes.push(node("Identity", &["v1000"], &["bomb"]));
    bomb(
        "many-large-values",
        nodes,
        vec![integers("large", &[2048, 2048])],
        &["in total", "at most"],
    )
}

/// Products of constants with 180 billion multiply-adds. An engine computes them when it opens the model.
fn slow_start() -> HostileModel {
    let mut nodes = vec![node("ConstantOfShape", &["square"], &["p0"])];
    for index in 0..400 {
        let (from, to) = (format!("p{index}"), format!("p{}", index + 1));
        nodes.push(node("MatMul", &[&from, "p0"], &[&to]));
    }
    nodes.push(node("Identity", &["p400"], &["bomb"]));
    bomb(
        "start-that-takes-minutes",
        nodes,
        vec![integers("square", &[768, 768])],
        &["MatMul", "weights alone"],
    )
}

/// Pooling with a window larger than most images at two million positions. Needs 600 billion operations per
/// sample, but the values have only 9 MB.
fn endless_window() -> HostileModel {
    let window = [ints("kernel_shape", &[512, 512]), ints("pads", &[511; 4])];
    let nodes = vec![
        node("ReduceSum", &["x"], &["one"]),
        node("Expand", &["one", "image"], &["pixels"]),
        node("MaxPool", &["pixels"], &["bomb"]).with(window),
    ];
    bomb(
        "window-that-takes-minutes",
        nodes,
        vec![integers("image", &[1, 1, 1024, 1024])],
        &["MaxPool", "the work per sample"],
    )
}

/// Integer products with 86 billion multiply-adds per sample, for which ONNX Runtime has no fast kernel. They
/// take a minute, although as many products of f32 take one or two seconds.
fn slow_integers() -> HostileModel {
    let mut nodes = vec![
        node("ReduceSum", &["x"], &["one"]),
        node("Expand", &["one", "square"], &["wide"]),
        node("Cast", &["wide"], &["p0"]).with([int("to", 7)]),
    ];
    for index in 0..10 {
        let (from, to) = (format!("p{index}"), format!("p{}", index + 1));
        nodes.push(node("MatMul", &[&from, "p0"], &[&to]));
    }
    nodes.push(node("Cast", &["p10"], &["bomb"]).with([int("to", 1)]));
    bomb(
        "integers-that-take-a-minute",
        nodes,
        vec![integers("square", &[2048, 2048])],
        &["MatMul", "the work per sample"],
    )
}

/// Matrix products with 1.7 trillion multiply-adds per sample. The values have only 16 MB.
fn endless_products() -> HostileModel {
    let mut nodes = vec![
        node("ReduceSum", &["x"], &["one"]),
        node("Expand", &["one", "square"], &["p0"]),
    ];
    for index in 0..200 {
        let (from, to) = (format!("p{index}"), format!("p{}", index + 1));
        nodes.push(node("MatMul", &[&from, "p0"], &[&to]));
    }
    nodes.push(node("Identity", &["p200"], &["bomb"]));
    bomb(
        "products-that-take-minutes",
        nodes,
        vec![integers("square", &[2048, 2048])],
        &["MatMul", "the work per sample"],
    )
}
