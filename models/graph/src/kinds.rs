//! What each value depends on: nothing but weights, only the shape of the input, or its data.

use crate::Model;
use crate::form::used;
use crate::onnx::NodeProto;
use crate::operators;
use std::collections::HashMap;

/// What a value depends on; ordered, so that a node's outputs have the greatest kind of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Weights, and what derives from them only.
    Constant,
    /// The input's shape, never its elements.
    Shape,
    /// The input's elements.
    Data,
}

/// Whether a node looks only at the shape of its input.
pub(crate) fn reads_shape(node: &NodeProto) -> bool {
    operators::find(node).is_some_and(|operator| operator.reads_shape)
}

/// The kind of every value of a model.
#[derive(Debug, Clone)]
pub(crate) struct Kinds(HashMap<String, Kind>);

impl Kinds {
    pub(crate) fn infer(model: &Model) -> Self {
        let mut kinds = Self(
            model
                .inputs()
                .map(|input| (input.name.clone(), Kind::Data))
                .collect(),
        );
        for node in model.nodes() {
            let kind = used(node)
                .into_iter()
                .map(|name| kinds.get(name))
                .max()
                .unwrap_or(Kind::Constant);
            let kind = if reads_shape(node) {
                kind.min(Kind::Shape)
            } else {
                kind
            };
            kinds
                .0
                .extend(node.output.iter().map(|name| (name.clone(), kind)));
        }
        kinds
    }

    /// The kind of a value; what no node produces is a weight.
    pub(crate) fn get(&self, name: &str) -> Kind {
        self.0.get(name).copied().unwrap_or(Kind::Constant)
    }

    pub(crate) fn is_data(&self, name: &str) -> bool {
        self.get(name) == Kind::Data
    }
}
