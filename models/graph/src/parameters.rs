//! Which weights of a model are trained: told by the operator that reads them and the slot they stand in.

use crate::Model;
use crate::onnx::{NodeProto, TensorProto, data_type};
use std::collections::{HashMap, HashSet};

/// A weight that training adjusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The initialiser's name.
    pub name: String,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Every place that reads it, in order of execution. Exporters let places share a weight when its values are equal.
    pub uses: Vec<Use>,
}

/// A place that reads a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The node's place in [`Model::nodes`].
    pub node: usize,
    /// Its operator.
    pub operator: String,
    /// Which of its inputs.
    pub slot: usize,
}

/// Operators that only rearrange a weight before its reader.
const REARRANGING: &[&str] = &[
    "Identity",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
];

impl Model {
    /// The trainable parameters, in order of first use: `f32` initialisers that stand where an operator expects a weight or a bias.
    /// Statistics of BatchNormalization, scalars, and constants of shape chains are none.
    pub fn parameters(&self) -> Vec<Parameter> {
        let weights = self.initializers();
        // A name derived from a weight by rearranging it, and that weight.
        let mut derived: HashMap<&str, &TensorProto> = weights.clone();
        let mut products: HashSet<&str> = HashSet::new();
        let mut found: Vec<Parameter> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (index, node) in self.nodes().iter().enumerate() {
            let operator = node.standard_operator().unwrap_or_default();
            if let (true, Some(weight)) = (
                REARRANGING.contains(&operator),
                node.input_name(0).and_then(|name| derived.get(name)),
            ) {
                derived.extend(node.output_name(0).map(|name| (name, *weight)));
                continue;
            }
            for slot in slots(operator, node, &products) {
                let weight = node.input_name(slot).and_then(|name| derived.get(name).copied());
                let Some(weight) = weight.filter(|weight| weight.data_type == data_type::FLOAT) else {
                    continue;
                };
                if is_scalar(weight) && !is_bias(operator, node, &products) {
                    continue;
                }
                if operator == "MatMul" {
                    products.extend(node.output_name(0));
                }
                let place = *places.entry(&weight.name).or_insert_with(|| {
                    found.push(Parameter {
                        name: weight.name.clone(),
                        dims: weight
                            .dims
                            .iter()
                            .map(|&dim| usize::try_from(dim).unwrap_or(0))
                            .collect(),
                        uses: Vec::new(),
                    });
                    found.len() - 1
                });
                if let Some(parameter) = found.get_mut(place) {
                    parameter.uses.push(Use {
                        node: index,
                        operator: operator.into(),
                        slot,
                    });
                }
            }
        }
        found
    }
}

/// The slots of an operator in which a parameter may stand.
fn slots(operator: &str, node: &NodeProto, products: &HashSet<&str>) -> Vec<usize> {
    match operator {
        "Conv"
        | "ConvTranspose"
        | "BatchNormalization"
        | "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization" => vec![1, 2],
        "PRelu" | "RMSNormalization" => vec![1],
        // A product's bias, a position embedding, the gain of a layer; and both factors of a product.
        "Gemm" => vec![0, 1, 2],
        "MatMul" | "Add" | "Mul" => vec![0, 1],
        // Class tokens and embeddings.
        "Expand" | "Gather" => vec![0],
        "Concat" => (0..node.input.len()).collect(),
        _ if is_bias(operator, node, products) => vec![0, 1],
        _ => vec![],
    }
}

/// Whether a node adds a bias to a product with a parameter; such a bias may be a single number.
fn is_bias(operator: &str, node: &NodeProto, products: &HashSet<&str>) -> bool {
    operator == "Add" && node.input.iter().any(|name| products.contains(name.as_str()))
        || matches!(operator, "Gemm" | "Conv" | "ConvTranspose" | "MatMul" | "PRelu")
        || operator.ends_with("Normalization")
}

fn is_scalar(weight: &TensorProto) -> bool {
    weight.dims.iter().product::<i64>() <= 1
}
