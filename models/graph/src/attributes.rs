//! Access to the attributes of nodes and the declared types of values.

use crate::onnx::{AttributeProto, Dimension, DimensionValue, NodeProto, TensorProto, TensorType, ValueInfo};

impl From<DimensionValue> for Dimension {
    fn from(value: DimensionValue) -> Self {
        Self {
            value: Some(value),
            ..Self::default()
        }
    }
}

impl Dimension {
    /// Returns the size of a fixed axis, or `None` if the axis is open.
    pub(crate) fn fixed(&self) -> Option<usize> {
        match self.value {
            Some(DimensionValue::DimValue(size)) if size > 0 => usize::try_from(size).ok(),
            _ => None,
        }
    }
}

impl ValueInfo {
    /// Returns the declared tensor type, or `None` if the value is not a tensor.
    pub fn tensor(&self) -> Option<&TensorType> {
        self.r#type.as_ref()?.tensor_type.as_ref()
    }
}

impl NodeProto {
    /// Returns the attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attribute.iter().find(|attribute| attribute.name == name)
    }

    /// Returns an integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i)
    }

    /// Returns an attribute with a list of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// Returns a floating-point attribute.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name).map(|attribute| attribute.f)
    }

    /// Returns a text attribute, or `None` if it is not valid UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.attribute(name)
            .and_then(|attribute| std::str::from_utf8(&attribute.s).ok())
    }

    /// Returns a tensor attribute.
    pub fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }

    /// Returns the name of input `slot`, or `None` if it is omitted.
    pub fn input_name(&self, slot: usize) -> Option<&str> {
        present(&self.input, slot)
    }

    /// Returns the name of output `slot`, or `None` if it is omitted.
    pub fn output_name(&self, slot: usize) -> Option<&str> {
        present(&self.output, slot)
    }

    /// Returns the operator if it belongs to ONNX's standard domain.
    pub fn standard_operator(&self) -> Option<&str> {
        matches!(self.domain.as_str(), "" | "ai.onnx").then_some(self.op_type.as_str())
    }

    /// Returns the name used in messages: the node's name, or its first output if it has none.
    pub fn label(&self) -> &str {
        if self.name.is_empty() {
            self.output.first().map_or("?", String::as_str)
        } else {
            &self.name
        }
    }
}

fn present(names: &[String], slot: usize) -> Option<&str> {
    let name = names.get(slot)?.as_str();
    (!name.is_empty()).then_some(name)
}
