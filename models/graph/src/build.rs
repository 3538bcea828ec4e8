//! Building graphs in code: nodes, attributes, initializers, and whole models.

use crate::onnx::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetId, TensorProto, TensorShape, TensorType, TypeProto, ValueInfo,
};
use crate::tensors::to_proto;
use bytes::Bytes;
use frostline_tensor::Tensor;

/// The ONNX IR version models built here declare; ONNX Runtime 1.14 and later read it.
const IR_VERSION: i64 = 8;
/// The name the batch axis gets on inputs and outputs.
pub const BATCH: &str = "batch";

/// A node; `inputs` may hold empty names for inputs left out. Its name is its first output's.
pub fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: operator.into(),
        name: outputs.first().copied().unwrap_or_default().into(),
        input: inputs.iter().map(|&name| name.into()).collect(),
        output: outputs.iter().map(|&name| name.into()).collect(),
        ..NodeProto::default()
    }
}

impl NodeProto {
    /// This node under another name; names of nodes are unique in a graph.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// This node with attributes added.
    #[must_use]
    pub fn with(mut self, attributes: impl IntoIterator<Item = AttributeProto>) -> Self {
        self.attribute.extend(attributes);
        self
    }
}

fn attribute(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: r#type.into(),
        ..AttributeProto::default()
    }
}

/// An integer attribute.
pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        i: value,
        ..attribute(name, AttributeType::Int)
    }
}

/// A list of integers.
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        ints: values.to_vec(),
        ..attribute(name, AttributeType::Ints)
    }
}

/// A number attribute.
pub fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        f: value,
        ..attribute(name, AttributeType::Float)
    }
}

/// A text attribute.
pub fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        s: Bytes::copy_from_slice(value.as_bytes()),
        ..attribute(name, AttributeType::String)
    }
}

/// A tensor attribute.
pub fn tensor(name: &str, value: &Tensor) -> AttributeProto {
    AttributeProto {
        t: Some(to_proto("", value)),
        ..attribute(name, AttributeType::Tensor)
    }
}

/// An initializer (a weight or a constant).
pub fn initializer(name: &str, value: &Tensor) -> TensorProto {
    to_proto(name, value)
}

/// A one-axis `i64` initializer, such as a shape or a list of axes.
pub fn integers(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type: crate::onnx::data_type::INT64,
        dims: vec![i64::try_from(values.len()).unwrap_or(i64::MAX)],
        raw_data: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>()
            .into(),
        ..TensorProto::default()
    }
}

/// An axis of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// Always this size.
    Fixed(usize),
    /// Any size; axes of one name agree.
    Named(String),
}

impl Axis {
    /// The batch axis.
    pub fn batch() -> Self {
        Self::Named(BATCH.into())
    }
}

/// An input or output of `data_type` (one of [`crate::onnx::data_type`]).
pub fn value(name: &str, data_type: i32, axes: &[Axis]) -> ValueInfo {
    let dim = axes.iter().map(|axis| {
        let value = match axis {
            Axis::Fixed(size) => DimensionValue::DimValue(i64::try_from(*size).unwrap_or(i64::MAX)),
            Axis::Named(name) => DimensionValue::DimParam(name.clone()),
        };
        Dimension {
            value: Some(value),
            ..Dimension::default()
        }
    });
    let shape = TensorShape { dim: dim.collect() };
    let tensor_type = TensorType {
        elem_type: data_type,
        shape: Some(shape),
    };
    ValueInfo {
        name: name.into(),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor_type),
            ..TypeProto::default()
        }),
        ..ValueInfo::default()
    }
}

/// An `f32` value whose first axis is the batch: an image input, a cut, logits.
pub fn batched(name: &str, row: &[usize]) -> ValueInfo {
    let axes: Vec<Axis> = std::iter::once(Axis::batch())
        .chain(row.iter().map(|&size| Axis::Fixed(size)))
        .collect();
    value(name, crate::onnx::data_type::FLOAT, &axes)
}

/// A model over `graph` that uses ONNX's own operators of version `opset`.
pub fn model(opset: i64, graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: IR_VERSION,
        producer_name: "frostline".into(),
        opset_import: vec![OperatorSetId {
            domain: String::new(),
            version: opset,
        }],
        graph: Some(graph),
        ..ModelProto::default()
    }
}
