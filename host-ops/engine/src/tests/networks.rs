//! Tiny networks.

use frostline_graph::onnx::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetId, TensorProto, TensorShape, TensorType, TypeProto, ValueInfo, data_type,
};
use prost::Message;

/// Encodes a network of `nodes` as an ONNX file.
pub(crate) fn network(
    nodes: Vec<NodeProto>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    weights: Vec<TensorProto>,
) -> Vec<u8> {
    let graph = GraphProto {
        node: nodes,
        name: "tiny".to_owned(),
        input: inputs,
        output: outputs,
        initializer: weights,
        ..Default::default()
    };
    let opset = OperatorSetId {
        domain: String::new(),
        version: 17,
    };
    ModelProto {
        ir_version: 8,
        opset_import: vec![opset],
        graph: Some(graph),
        ..Default::default()
    }
    .encode_to_vec()
}

pub(crate) fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.to_owned(),
        input: inputs.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![output.to_owned()],
        ..Default::default()
    }
}

pub(crate) fn int_attribute(name: &str, value: i32) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        i: i64::from(value),
        r#type: AttributeType::Int.into(),
        ..Default::default()
    }
}

/// Declares a tensor. A dimension of -1 is the batch.
pub(crate) fn value(name: &str, elem_type: i32, dims: &[i64]) -> ValueInfo {
    let dimension = |&dim: &i64| Dimension {
        value: Some(match dim {
            -1 => DimensionValue::DimParam("batch".to_owned()),
            size => DimensionValue::DimValue(size),
        }),
        ..Default::default()
    };
    let shape = TensorShape {
        dim: dims.iter().map(dimension).collect(),
    };
    let tensor_type = TensorType {
        elem_type,
        shape: Some(shape),
    };
    ValueInfo {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor_type),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn floats(name: &str, dims: &[i64]) -> ValueInfo {
    value(name, data_type::FLOAT, dims)
}

pub(crate) fn integers(name: &str, dims: &[i64]) -> ValueInfo {
    value(name, data_type::INT64, dims)
}

pub(crate) fn weight(name: &str, dims: &[i64], values: Vec<f32>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: data_type::FLOAT,
        float_data: values,
        ..Default::default()
    }
}

/// `y = max(x, 0)` on rows of `width`.
pub(crate) fn relu(width: i64) -> Vec<u8> {
    network(
        vec![node("Relu", &["x"], "y")],
        vec![floats("x", &[-1, width])],
        vec![floats("y", &[-1, width])],
        vec![],
    )
}

/// `y = (x * w + a) * b` on rows of 4. The size of `a` is not a multiple of 64 bytes.
pub(crate) fn misaligned() -> Vec<u8> {
    let width = 301;
    let columns = 96;
    let values = |count: i64| (0..count).map(|index| (index % 7) as f32 - 3.0).collect();
    network(
        vec![
            node("MatMul", &["x", "w"], "wide"),
            node("Add", &["wide", "a"], "sum"),
            node("MatMul", &["sum", "b"], "y"),
        ],
        vec![floats("x", &[-1, 4])],
        vec![floats("y", &[-1, columns])],
        vec![
            weight("w", &[4, width], values(4 * width)),
            weight("a", &[1, width], values(width)),
            weight("b", &[width, columns], values(width * columns)),
        ],
    )
}

/// `y = max(x, 0)`, with each row as a matrix.
pub(crate) fn matrices() -> Vec<u8> {
    of_matrices(vec![
        node("Unsqueeze", &["x", "one"], "batched"),
        node("Relu", &["batched"], "y"),
    ])
}

/// `y` is a batched product over an axis of size 0. ONNX Runtime 1.31 only writes the first matrix.
pub(crate) fn unwritten() -> Vec<u8> {
    of_matrices(vec![
        node("Unsqueeze", &["x", "one"], "batched"),
        node("Slice", &["batched", "zero", "zero", "one"], "right"),
        node("MatMul", &["left", "right"], "y"),
    ])
}

/// Creates a network from rows of 4 to matrices with a single row.
fn of_matrices(nodes: Vec<NodeProto>) -> Vec<u8> {
    let place = |name: &str, axis: i64| TensorProto {
        dims: vec![1],
        ..whole(name, axis)
    };
    network(
        nodes,
        vec![floats("x", &[-1, 4])],
        vec![floats("y", &[-1, 1, 4])],
        vec![
            place("zero", 0),
            place("one", 1),
            weight("left", &[1, 0], Vec::new()),
        ],
    )
}

/// `y = x` on pixels of any size.
pub(crate) fn pixels() -> Vec<u8> {
    network(
        vec![node("Identity", &["x"], "y")],
        vec![floats("x", &[-1, 3, -1, -1])],
        vec![floats("y", &[-1, 3, -1, -1])],
        vec![],
    )
}

/// `y = x · w^length` on rows of `width`. The time grows with `length`, and the execution can be interrupted
/// between two products.
pub(crate) fn slow(width: usize, length: usize) -> Vec<u8> {
    let dim = i64::try_from(width).unwrap();
    let identity = (0..width * width)
        .map(|i| f32::from(u8::from(i % (width + 1) == 0)))
        .collect();
    let name = |index: usize| {
        if index == length {
            "y".to_owned()
        } else {
            format!("h{index}")
        }
    };
    let mut nodes = vec![node("MatMul", &["x", "w"], &name(1))];
    nodes.extend((1..length).map(|index| node("MatMul", &[&name(index), "w"], &name(index + 1))));
    network(
        nodes,
        vec![floats("x", &[-1, dim])],
        vec![floats("y", &[-1, dim])],
        vec![weight("w", &[dim, dim], identity)],
    )
}

/// `y = x` on rows of 4 with `length` layers, which determine the time to open a session.
pub(crate) fn deep(length: usize) -> Vec<u8> {
    let name = |index: usize| match index {
        0 => "x".to_owned(),
        _ if index == length => "y".to_owned(),
        _ => format!("h{index}"),
    };
    let layer = |index: usize| node("Neg", &[&name(index)], &name(index + 1));
    network(
        (0..length).map(layer).collect(),
        vec![floats("x", &[-1, 4])],
        vec![floats("y", &[-1, 4])],
        vec![],
    )
}

/// `y = x / -1` on rows of 4 integers. ONNX Runtime does not check for the overflow of the smallest integer,
/// so the processor raises an exception that ends the process.
pub(crate) fn divided() -> Vec<u8> {
    network(
        vec![node("Div", &["x", "w"], "y")],
        vec![value("x", data_type::INT64, &[-1, 4])],
        vec![value("y", data_type::INT64, &[-1, 4])],
        vec![whole("w", -1)],
    )
}

/// Adds the same quotient of two constants, so the crash happens while the session is opened.
pub(crate) fn folded() -> Vec<u8> {
    network(
        vec![node("Div", &["least", "w"], "h"), node("Add", &["x", "h"], "y")],
        vec![value("x", data_type::INT64, &[-1, 4])],
        vec![value("y", data_type::INT64, &[-1, 4])],
        vec![whole("least", i64::MIN), whole("w", -1)],
    )
}

/// Needs gigabytes of memory.
pub(crate) fn hungry() -> Vec<u8> {
    tiled(20_000)
}

/// `y = x` on rows of 4. Each row needs 16 bytes times `size` for intermediate tensors.
pub(crate) fn swollen(size: i64) -> Vec<u8> {
    let numbers = |name: &str, values: Vec<i64>| TensorProto {
        name: name.to_owned(),
        dims: vec![i64::try_from(values.len()).unwrap()],
        data_type: data_type::INT64,
        int64_data: values,
        ..Default::default()
    };
    network(
        vec![
            node("Tile", &["x", "repeats"], "h"),
            node("Neg", &["h"], "n"),
            node("Slice", &["n", "start", "end", "axis"], "s"),
            node("Neg", &["s"], "y"),
        ],
        vec![floats("x", &[-1, 4])],
        vec![floats("y", &[-1, 4])],
        vec![
            numbers("repeats", vec![1, size]),
            numbers("start", vec![0]),
            numbers("end", vec![4]),
            numbers("axis", vec![1]),
        ],
    )
}

/// `y = x` on rows of 4 with products of all pairs of rows. Memory grows with the square of the rows.
pub(crate) fn squared() -> Vec<u8> {
    let axes = whole("axes", 1);
    let nothing = weight("nothing", &[1], vec![0.0]);
    network(
        vec![
            node("Transpose", &["x"], "t"),
            node("MatMul", &["x", "t"], "h"),
            node("ReduceSum", &["h", "axes"], "s"),
            node("Mul", &["s", "nothing"], "z"),
            node("Add", &["x", "z"], "y"),
        ],
        vec![floats("x", &[-1, 4])],
        vec![floats("y", &[-1, 4])],
        vec![axes, nothing],
    )
}

/// Repeats a row of 4 to a square matrix of `size` and multiplies it by itself.
fn tiled(size: i64) -> Vec<u8> {
    let repeats = TensorProto {
        name: "repeats".to_owned(),
        dims: vec![2],
        data_type: data_type::INT64,
        int64_data: vec![size, size / 4],
        ..Default::default()
    };
    network(
        vec![
            node("Tile", &["x", "repeats"], "h"),
            node("MatMul", &["h", "h"], "y"),
        ],
        vec![floats("x", &[1, 4])],
        vec![floats("y", &[size, size])],
        vec![repeats],
    )
}

/// Rows of 4 to rows of 2^20 floats (4 MiB), with 16 MiB of weights.
pub(crate) fn wide() -> Vec<u8> {
    product(1 << 20)
}

/// The product of rows of 4 and weights with `width` columns. Weight `i` is `(i % 251) / 251`.
pub(crate) fn product(width: i64) -> Vec<u8> {
    let values = (0..4 * width).map(|index| (index % 251) as f32 / 251.0);
    network(
        vec![node("MatMul", &["x", "w"], "y")],
        vec![floats("x", &[-1, 4])],
        vec![floats("y", &[-1, width])],
        vec![weight("w", &[4, width], values.collect())],
    )
}

pub(crate) fn whole(name: &str, value: i64) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: vec![1],
        data_type: data_type::INT64,
        int64_data: vec![value],
        ..Default::default()
    }
}

/// A training step for a weight vector: `next_w = w - rate * x`, `next_m = m + w`, `sum = reduce_sum(w * x)`.
pub(crate) fn step(width: i64) -> Vec<u8> {
    let nodes = vec![
        node("Mul", &["rate", "x"], "delta"),
        node("Sub", &["w", "delta"], "next_w"),
        node("Add", &["m", "w"], "next_m"),
        node("Mul", &["w", "x"], "product"),
        NodeProto {
            attribute: vec![int_attribute("keepdims", 0)],
            ..node("ReduceSum", &["product"], "sum")
        },
    ];
    let vector = |name| floats(name, &[width]);
    network(
        nodes,
        vec![vector("w"), vector("m"), vector("x"), floats("rate", &[])],
        vec![vector("next_w"), vector("next_m"), floats("sum", &[])],
        vec![],
    )
}
