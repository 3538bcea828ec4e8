//! Finds the trainable weights of a model. The operator that reads a weight and the input slot determine
//! whether it is trainable.

use crate::Model;
use crate::kinds::Kinds;
use crate::onnx::data_type::is_float;
use crate::onnx::{NodeProto, TensorProto};
use crate::operators::{self, HeadPart, Operator};
use crate::own_weights::{elements, has_equal_elements};
use crate::rotary::rotary_tables;
use crate::tensors::{from_proto, numbers};
use std::collections::{HashMap, HashSet};

impl Model {
    /// Returns the trainable weights in the order of the first use. A trainable weight is a floating-point
    /// initializer in a slot for a weight or a bias. Added tables, concatenated tokens, slopes and scales are
    /// included.
    ///
    /// A weight can also be computed from initializers: cast, rearranged, normalized (weight norm,
    /// standardized convolutions), summed (low-rank adapters) or partly overwritten (Swin's biases of keys).
    /// These initializers are trainable, because training differentiates through the computation.
    ///
    /// Statistics of BatchNormalization, scalars that scale or shift, tensors in `Constant` nodes and
    /// constants in shape computations are not trainable. Further constants are detected by value or by use:
    /// attention masks (all values are 0 or at most -100), a scale of ones with a bias of zeros in an
    /// InstanceNormalization, tables of sines and cosines (rotary position embeddings), and in computed weights,
    /// tables of different whole numbers, vectors of spectral norms, and the fixed inputs of small networks (such
    /// as the coordinates of a position bias).
    pub fn parameters(&self) -> Vec<&TensorProto> {
        let kinds = Kinds::infer(self);
        let tables = rotary_tables(&self.graph().initializer);
        let stored = self.graph().initializer.iter();
        let stored =
            stored.filter(|weight| is_float(weight.data_type) && !tables.contains(weight.name.as_str()));
        let mut search = ParameterSearch {
            derived: stored
                .map(|weight| (weight.name.as_str(), Derived::stored(weight)))
                .collect(),
            products: HashSet::new(),
        };
        let mut names = HashSet::new();
        let mut found = Vec::new();
        for node in self.nodes() {
            let is_data = node.output.iter().any(|name| kinds.is_data(name));
            let read = search.read(node, is_data).into_iter();
            found.extend(read.filter(|weight| names.insert(weight.name.as_str())));
        }
        found
    }

    /// Returns the floating-point initializers with several elements that are not [parameters](Self::parameters),
    /// although the gradient of the output would reach them. They are constants, judging by their values or their
    /// use, but a weight in an unusual place would be among them too. Masks, rotary tables, and neutral scales and
    /// biases of normalizations are not included.
    pub fn fixed_weights(&self) -> Vec<&TensorProto> {
        let kinds = Kinds::infer(self);
        let stored = self.graph().initializer.iter();
        let tables = rotary_tables(&self.graph().initializer);
        let stored = stored.filter(|weight| {
            is_float(weight.data_type) && elements(weight) > 1 && !tables.contains(weight.name.as_str())
        });
        let mut origins: HashMap<&str, Vec<&TensorProto>> = stored
            .map(|weight| (weight.name.as_str(), vec![weight]))
            .collect();
        let mut known: HashSet<&str> = self
            .parameters()
            .iter()
            .map(|weight| weight.name.as_str())
            .collect();
        let mut fixed = Vec::new();
        for node in self.nodes() {
            let read = gradient_inputs(node, &origins);
            if !node.output.iter().any(|name| kinds.is_data(name)) {
                origins.extend(node.output.iter().map(|name| (name.as_str(), read.clone())));
            } else if !has_constant_rule(node, &read) {
                fixed.extend(
                    read.into_iter()
                        .filter(|weight| known.insert(weight.name.as_str())),
                );
            }
        }
        fixed
    }
}

/// Value that is independent of data, and the weights used to compute it.
#[derive(Clone)]
struct Derived<'a> {
    leaves: Vec<Leaf<'a>>,
    /// True if the value has the elements of a single weight.
    same_elements: bool,
}

#[derive(Clone)]
struct Leaf<'a> {
    weight: &'a TensorProto,
    role: WeightRole,
}

/// Roles of tensors from which a weight is computed. If several apply, the last one in this order counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WeightRole {
    /// First operand of a product. This is a factor of a weight (low-rank adapters), unless an activation
    /// follows.
    Factor,
    /// Fixed input of a small network.
    Fixed,
    Weight,
}

impl<'a> Derived<'a> {
    fn stored(weight: &'a TensorProto) -> Self {
        let role = WeightRole::Weight;
        Self {
            leaves: vec![Leaf { weight, role }],
            same_elements: true,
        }
    }
}

struct ParameterSearch<'a> {
    /// Values by name that do not depend on data.
    derived: HashMap<&'a str, Derived<'a>>,
    /// Products with a parameter. A later node can add the bias.
    products: HashSet<&'a str>,
}

impl<'a> ParameterSearch<'a> {
    /// Returns the parameters that the next node reads, and collects the ones that a value without data is
    /// computed from.
    fn read(&mut self, node: &'a NodeProto, is_data: bool) -> Vec<&'a TensorProto> {
        let Some(operator) = operators::find(node) else {
            return Vec::new();
        };
        let first = node.input_name(0).and_then(|name| self.derived.get(name));
        if let (true, Some(same)) = (operator.rearranges || node.casts_to_float(), first) {
            let same = same.clone();
            self.derived.extend(node.output_name(0).map(|name| (name, same)));
            return Vec::new();
        }
        let read = self.read_directly(operator, node);
        if !is_data {
            let leaves = self.leaves(operator, node, &read);
            self.derived.extend(node.output.iter().map(|name| {
                let same_elements = false;
                (
                    name.as_str(),
                    Derived {
                        leaves: leaves.clone(),
                        same_elements,
                    },
                )
            }));
            return Vec::new();
        }
        let derived = self.operands(node).filter(|(_, operand)| !operand.same_elements);
        let leaves = derived.flat_map(|(_, operand)| &operand.leaves);
        let leaves = leaves
            .filter(|leaf| leaf.role != WeightRole::Fixed)
            .map(|leaf| leaf.weight);
        let found: Vec<_> = read.into_iter().map(|(_, weight)| weight).chain(leaves).collect();
        if operator.head == HeadPart::Product && !found.is_empty() {
            self.products.extend(node.output_name(0));
        }
        found
    }

    /// Returns the operands through which a gradient can flow and that do not depend on data.
    fn operands(&self, node: &'a NodeProto) -> impl Iterator<Item = (usize, &Derived<'a>)> {
        let slots = (0..node.input.len()).filter(|slot| carries_gradient(node, *slot));
        slots.filter_map(|slot| Some((slot, self.derived.get(node.input_name(slot)?)?)))
    }

    /// Returns the weights whose elements the node reads in the slots for weights of its operator.
    fn read_directly(&self, operator: &Operator, node: &'a NodeProto) -> Vec<(usize, &'a TensorProto)> {
        let single_numbers = operator.numbers || self.is_bias(operator, node);
        let read = self
            .operands(node)
            .filter(|(slot, operand)| operand.same_elements && operator.weights.contains(slot));
        let read = read.filter_map(|(slot, operand)| Some((slot, operand.leaves.first()?.weight)));
        let read: Vec<_> = read
            .filter(|(_, weight)| single_numbers || elements(weight) > 1)
            .collect();
        if operator.constant.is_some_and(|is_constant| {
            values(read.iter().map(|(_, weight)| *weight)).is_some_and(|read| is_constant(&read))
        }) {
            return Vec::new();
        }
        read
    }

    /// Returns the weights from which the outputs of a node without data are computed.
    fn leaves(
        &self,
        operator: &Operator,
        node: &'a NodeProto,
        read: &[(usize, &'a TensorProto)],
    ) -> Vec<Leaf<'a>> {
        let name = operator.name;
        if operator.flat || name == "Cast" {
            return Vec::new();
        }
        let is_product = matches!(name, "Conv" | "Einsum" | "Gemm" | "MatMul");
        let mut leaves: Vec<Leaf<'a>> = Vec::new();
        for (slot, operand) in self.operands(node) {
            let is_read = read.iter().any(|(read, _)| *read == slot);
            for leaf in &operand.leaves {
                let mut role = leaf.role;
                if operand.same_elements {
                    let is_vector = is_product && slot < 2 && leaf.weight.dims.len() < 2;
                    let is_weight = is_read || !operator.weights.contains(&slot);
                    if is_vector
                        || !is_weight
                        || elements(leaf.weight) < 2 && !is_read
                        || has_whole_numbers(leaf.weight)
                        || changes_nothing(node, slot, leaf.weight)
                    {
                        continue;
                    }
                    if is_product && slot == 0 {
                        role = WeightRole::Factor;
                    }
                }
                if role == WeightRole::Factor && operator.activates {
                    role = WeightRole::Fixed;
                }
                match leaves
                    .iter_mut()
                    .find(|known| known.weight.name == leaf.weight.name)
                {
                    Some(known) => known.role = known.role.max(role),
                    None => leaves.push(Leaf {
                        weight: leaf.weight,
                        role,
                    }),
                }
            }
        }
        leaves
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

/// Returns the weights that the node reads, directly or computed, where the gradient of its output reaches them.
fn gradient_inputs<'a>(
    node: &NodeProto,
    origins: &HashMap<&str, Vec<&'a TensorProto>>,
) -> Vec<&'a TensorProto> {
    if operators::find(node).is_some_and(|operator| operator.flat) {
        return Vec::new();
    }
    let inputs = node.input.iter().enumerate();
    let inputs = inputs.filter(|(slot, _)| carries_gradient(node, *slot));
    let weights = inputs.filter_map(|(slot, name)| Some((slot, origins.get(name.as_str())?)));
    weights
        .flat_map(|(slot, weights)| {
            weights
                .iter()
                .filter(move |weight| !changes_nothing(node, slot, weight))
        })
        .copied()
        .collect()
}

/// Returns true if the node's operator treats weights with these values as constants.
fn has_constant_rule(node: &NodeProto, weights: &[&TensorProto]) -> bool {
    let rule = operators::find(node).and_then(|operator| operator.constant);
    rule.is_some_and(|is_constant| values(weights.iter().copied()).is_some_and(|read| is_constant(&read)))
}

/// Returns true if the gradient of the node's output flows to the operand in `slot`.
fn carries_gradient(node: &NodeProto, slot: usize) -> bool {
    match node.op_type.as_str() {
        "BatchNormalization" => slot < 3,
        "Clip" | "DequantizeLinear" | "Pad" | "Pow" | "QuantizeLinear" | "Resize" | "Upsample" => slot == 0,
        "ScatterND" => slot != 1,
        "Where" => slot > 0,
        _ => true,
    }
}

/// Returns true for different whole numbers: coordinates, regions or one-hot rows. Weights with equal
/// elements can be whole numbers before they are trained.
fn has_whole_numbers(weight: &TensorProto) -> bool {
    let Some(values) = values([weight].into_iter()) else {
        return false;
    };
    let first = values.iter().flatten().next();
    let differ = values.iter().flatten().any(|value| Some(value) != first);
    differ
        && values
            .iter()
            .flatten()
            .all(|value| value.is_infinite() || value.fract() == 0.0)
}

/// Returns true for the scale of ones or the bias of zeros that an exporter adds to a normalization without
/// an affine part, and for equal numbers that overwrite a part of a tensor.
fn changes_nothing(node: &NodeProto, slot: usize, weight: &TensorProto) -> bool {
    let neutral = match (node.op_type.as_str(), slot) {
        ("BatchNormalization", 1) => 1.0,
        ("BatchNormalization", 2) => 0.0,
        ("ScatterND", 2) => return has_equal_elements(weight),
        _ => return false,
    };
    values([weight].into_iter()).is_some_and(|values| values.iter().flatten().all(|value| *value == neutral))
}

/// Returns the elements of all weights, or `None` if reading fails.
fn values<'a>(weights: impl Iterator<Item = &'a TensorProto>) -> Option<Vec<Vec<f64>>> {
    weights
        .map(|weight| numbers(from_proto(weight).ok()?.data()))
        .collect()
}
