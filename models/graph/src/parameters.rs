//! Finds the trainable weights of a model. The operator that reads a weight and the input slot determine
//! whether it is trainable.

use crate::Model;
use crate::onnx::{NodeProto, TensorProto, data_type};
use crate::operators::{self, HeadPart, Operator};
use crate::tensors::from_proto;
use frostline_tensor::Data;
use std::collections::{HashMap, HashSet};

impl Model {
    /// Returns the trainable weights in the order of the first use. A trainable weight is a floating-point
    /// initializer in a slot for a weight or a bias. Added tables, concatenated tokens, slopes and scales are
    /// included. A weight can also pass through nodes that only rearrange the elements.
    ///
    /// Statistics of BatchNormalization, scalars that scale or shift, tensors in `Constant` nodes and
    /// constants in shape computations are not trainable. Two more constants are detected by value: attention
    /// masks (all values are 0 or at most -100), and a scale of ones with a bias of zeros in an
    /// InstanceNormalization.
    pub fn parameters(&self) -> Vec<&TensorProto> {
        let mut search = Search {
            derived: self.initializers(),
            products: HashSet::new(),
        };
        let mut names = HashSet::new();
        let mut found = Vec::new();
        for node in self.nodes() {
            let read = search.read(node).into_iter();
            found.extend(read.filter(|weight| names.insert(weight.name.as_str())));
        }
        found
    }
}

struct Search<'a> {
    /// Weights by name, including the names after rearrangement.
    derived: HashMap<&'a str, &'a TensorProto>,
    /// Products with a parameter. A later node can add the bias.
    products: HashSet<&'a str>,
}

impl<'a> Search<'a> {
    /// Returns the parameters that the next node reads.
    fn read(&mut self, node: &'a NodeProto) -> Vec<&'a TensorProto> {
        let Some(operator) = operators::find(node) else {
            return Vec::new();
        };
        let weight = |slot| {
            node.input_name(slot)
                .and_then(|name| self.derived.get(name).copied())
        };
        if let (true, Some(weight)) = (operator.rearranges, weight(0)) {
            self.derived
                .extend(node.output_name(0).map(|name| (name, weight)));
            return Vec::new();
        }
        let numbers = operator.numbers || self.is_bias(operator, node);
        let slots = operator.weights.start..operator.weights.end.min(node.input.len());
        let read: Vec<_> = slots
            .filter_map(weight)
            .filter(|weight| is_float(weight) && (numbers || elements(weight) > 1))
            .collect();
        if operator
            .constant
            .is_some_and(|is_constant| values(&read).is_some_and(|read| is_constant(&read)))
        {
            return Vec::new();
        }
        if operator.head == HeadPart::Product && !read.is_empty() {
            self.products.extend(node.output_name(0));
        }
        read
    }

    /// Returns true if a node adds a bias to a product with a parameter. The bias can be a scalar.
    fn is_bias(&self, operator: &Operator, node: &NodeProto) -> bool {
        let behind = node
            .input
            .iter()
            .any(|name| self.products.contains(name.as_str()));
        operator.head == HeadPart::Bias && behind
    }
}

/// Returns the elements of all weights, or `None` if reading fails.
fn values(weights: &[&TensorProto]) -> Option<Vec<Vec<f64>>> {
    let read = |weight: &&TensorProto| match from_proto(weight).ok()?.into_data() {
        Data::F32(values) => Some(values.into_iter().map(f64::from).collect()),
        Data::F64(values) => Some(values),
        _ => None,
    };
    weights.iter().map(read).collect()
}

fn is_float(weight: &TensorProto) -> bool {
    matches!(weight.data_type, data_type::FLOAT | data_type::DOUBLE)
}

fn elements(weight: &TensorProto) -> i64 {
    weight.dims.iter().product()
}
