//! Classification of values by their dependency on weights, on the input's shape and on the input's elements.

use crate::Model;
use crate::form::read_names;
use crate::onnx::NodeProto;
use crate::operators;
use std::collections::HashMap;

/// Dependency of a value. The variants are ordered. The kind of a node's outputs is the maximum kind of the
/// inputs, or [`ValueKind::Shape`] if that is less and the node only reads shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ValueKind {
    /// Depends on weights only.
    Constant,
    /// Depends on the shape of the input, but not on its elements.
    Shape,
    /// Depends on the elements of the input.
    Data,
}

/// Returns true if the node uses only the shape of its input.
pub(crate) fn reads_shape(node: &NodeProto) -> bool {
    operators::find(node).is_some_and(|operator| operator.reads_shape)
}

/// Kinds of all values in a model.
#[derive(Debug, Clone)]
pub(crate) struct Kinds(HashMap<String, ValueKind>);

impl Kinds {
    pub(crate) fn infer(model: &Model) -> Self {
        let mut kinds = Self(
            model
                .inputs()
                .map(|input| (input.name.clone(), ValueKind::Data))
                .collect(),
        );
        for node in model.nodes() {
            let kind = read_names(node)
                .into_iter()
                .map(|name| kinds.get(name))
                .max()
                .unwrap_or(ValueKind::Constant);
            let kind = if reads_shape(node) {
                kind.min(ValueKind::Shape)
            } else {
                kind
            };
            kinds
                .0
                .extend(node.output.iter().map(|name| (name.clone(), kind)));
        }
        kinds
    }

    /// Returns the kind of a value. Values without a producer are weights.
    pub(crate) fn get(&self, name: &str) -> ValueKind {
        self.0.get(name).copied().unwrap_or(ValueKind::Constant)
    }

    pub(crate) fn is_data(&self, name: &str) -> bool {
        self.get(name) == ValueKind::Data
    }
}
