//! Which weights of a model are trained: told by the operator that reads them and the slot they stand in.

use crate::Model;
use crate::onnx::{NodeProto, TensorProto, data_type};
use crate::operators::{self, HeadPart, Operator};
use crate::tensors::from_proto;
use frostline_tensor::Data;
use std::collections::{HashMap, HashSet};

impl Model {
    /// The weights that training adjusts, in order of first use: floating-point initializers that stand where an operator expects a
    /// weight or a bias (tables that are added, tokens that are joined, slopes and scales as well), also behind nodes that only rearrange
    /// them. None are statistics of BatchNormalization, single numbers that scale or shift, what a `Constant` node holds, constants of
    /// shape chains, and two that exporters write where a weight could stand, told by their values: masks of attention (all 0 or
    /// at most -100), and an InstanceNormalization's scale of ones with a bias of zeros.
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
    /// Each weight by its name and by those of what it is rearranged to.
    derived: HashMap<&'a str, &'a TensorProto>,
    /// Products with a parameter, which leave their bias to the next node.
    products: HashSet<&'a str>,
}

impl<'a> Search<'a> {
    /// The parameters that the next node reads.
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

    /// Whether a node adds a bias to a product with a parameter; such a bias may be a single number.
    fn is_bias(&self, operator: &Operator, node: &NodeProto) -> bool {
        let behind = node
            .input
            .iter()
            .any(|name| self.products.contains(name.as_str()));
        operator.head == HeadPart::Bias && behind
    }
}

/// The elements of each weight, unless they cannot be read.
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
