//! Builds graphs in code, from nodes and attributes to whole models.

use crate::onnx::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetId, TensorProto, TensorShape, TensorType, TypeProto, ValueInfo,
};
use crate::tensors::{code_of, from_bytes};
use bytes::Bytes;
use frostline_tensor::Tensor;

/// ONNX IR version of new models. ONNX Runtime 1.14 and later can read it.
const IR_VERSION: i64 = 8;
/// Name of the batch axis of inputs and outputs.
pub const BATCH: &str = "batch";

/// Creates a node and names it after the first output. An empty name in `inputs` omits an optional input.
pub fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: operator.into(),
        name: outputs.first().copied().unwrap_or_default().into(),
        input: inputs.iter().map(|&name| name.into()).collect(),
        output: outputs.iter().map(|&name| name.into()).collect(),
        ..NodeProto::default()
    }
}

/// Creates a node that converts `from` to the element type `code` (one of [`crate::onnx::data_type`]).
pub fn cast(from: &str, to: &str, code: i32) -> NodeProto {
    node("Cast", &[from], &[to]).with([int("to", code.into())])
}

impl NodeProto {
    /// Returns the node with another name. Node names are unique in a graph.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Returns the node with additional attributes.
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

/// Creates an integer attribute.
pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        i: value,
        ..attribute(name, AttributeType::Int)
    }
}

/// Creates an attribute with a list of integers.
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        ints: values.to_vec(),
        ..attribute(name, AttributeType::Ints)
    }
}

/// Creates a floating-point attribute.
pub fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        f: value,
        ..attribute(name, AttributeType::Float)
    }
}

/// Creates a text attribute.
pub fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        s: Bytes::copy_from_slice(value.as_bytes()),
        ..attribute(name, AttributeType::String)
    }
}

/// Creates a tensor attribute.
pub fn tensor(name: &str, value: &Tensor) -> AttributeProto {
    AttributeProto {
        t: Some(initializer("", value)),
        ..attribute(name, AttributeType::Tensor)
    }
}

/// Creates an initializer, which is a weight or a constant. This copies the bytes.
pub fn initializer(name: &str, value: &Tensor) -> TensorProto {
    let dims = value.shape().dims().iter();
    let dims = dims.map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
    let bytes = Bytes::copy_from_slice(value.as_bytes());
    from_bytes(name, code_of(value.dtype()), dims, bytes)
}

/// Creates an initializer with a vector of `i64`, such as a shape or a list of axes.
pub fn integers(name: &str, values: &[i64]) -> TensorProto {
    let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    from_bytes(name, crate::onnx::data_type::INT64, vec![count], bytes)
}

/// Axis of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// Axis with this size.
    Fixed(usize),
    /// Axis with an arbitrary size. Axes with the same name have the same size.
    Named(String),
}

impl Axis {
    /// Returns the batch axis.
    pub fn batch() -> Self {
        Self::Named(BATCH.into())
    }
}

/// Creates an input or output with the element type `data_type` (one of [`crate::onnx::data_type`]).
pub fn value(name: &str, data_type: i32, axes: &[Axis]) -> ValueInfo {
    let dims = axes.iter().map(|axis| match axis {
        Axis::Fixed(size) => DimensionValue::DimValue(i64::try_from(*size).unwrap_or(i64::MAX)),
        Axis::Named(name) => DimensionValue::DimParam(name.clone()),
    });
    declared(name, data_type, dims.map(Dimension::from).collect())
}

/// Creates an input or output with these axes.
pub(crate) fn declared(name: &str, elem_type: i32, dim: Vec<Dimension>) -> ValueInfo {
    let tensor_type = TensorType {
        elem_type,
        shape: Some(TensorShape { dim }),
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

/// Creates an `f32` input or output whose first axis is the batch, such as images, activations at a cut or
/// logits. `row` is the shape per sample.
pub fn batched(name: &str, row: &[usize]) -> ValueInfo {
    let axes: Vec<Axis> = std::iter::once(Axis::batch())
        .chain(row.iter().map(|&size| Axis::Fixed(size)))
        .collect();
    value(name, crate::onnx::data_type::FLOAT, &axes)
}

/// Creates a model from `graph` with version `opset` of ONNX's standard operators.
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
