//! Reading what nodes and values say of themselves.

use crate::onnx::{AttributeProto, NodeProto, TensorProto, TensorType, ValueInfo};

impl ValueInfo {
    /// What a file says of it, if it is a tensor.
    pub fn tensor(&self) -> Option<&TensorType> {
        self.r#type.as_ref()?.tensor_type.as_ref()
    }
}

impl NodeProto {
    /// The attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attribute.iter().find(|attribute| attribute.name == name)
    }

    /// An integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i)
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// A number attribute.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name).map(|attribute| attribute.f)
    }

    /// A text attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.attribute(name)
            .and_then(|attribute| std::str::from_utf8(&attribute.s).ok())
    }

    /// A tensor attribute.
    pub fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }

    /// The name of input `slot`; `None` when it is left out.
    pub fn input_name(&self, slot: usize) -> Option<&str> {
        self.input
            .get(slot)
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }

    /// The name of output `slot`; `None` when it is not wanted.
    pub fn output_name(&self, slot: usize) -> Option<&str> {
        self.output
            .get(slot)
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }

    /// The operator when it is one of ONNX's own, not of another domain.
    pub fn standard_operator(&self) -> Option<&str> {
        matches!(self.domain.as_str(), "" | "ai.onnx").then_some(self.op_type.as_str())
    }

    /// How messages call this node: its name, else its first output's.
    pub fn label(&self) -> &str {
        if self.name.is_empty() {
            self.output.first().map_or("?", String::as_str)
        } else {
            &self.name
        }
    }
}
