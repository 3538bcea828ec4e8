//! Shape inference for one concrete batch size, without the file's own `value_info`: the rules of ONNX's operators, as
//! <https://onnx.ai/onnx/operators/> states them, and the evaluation of chains that compute shapes.

pub(crate) mod elementwise;
mod evaluate;
pub(crate) mod layers;
pub(crate) mod layout;
pub(crate) mod literal;
mod rules;
mod windows;

use crate::onnx::{DimensionValue, NodeProto, TensorProto, ValueInfo};
use crate::{GraphError, Model};
use literal::Literal;
use std::collections::HashMap;

/// What is known of a value before anything runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Value {
    /// ONNX's code of the element type; 0 when unknown.
    pub(crate) data_type: i32,
    pub(crate) dims: Option<Vec<usize>>,
    pub(crate) literal: Option<Literal>,
}

impl Value {
    pub(crate) const UNKNOWN: Self = Self {
        data_type: 0,
        dims: None,
        literal: None,
    };

    pub(crate) fn of(data_type: i32, dims: Vec<usize>) -> Self {
        Self {
            data_type,
            dims: Some(dims),
            literal: None,
        }
    }

    pub(crate) fn constant(proto: &TensorProto) -> Result<Self, GraphError> {
        let dims = Some(crate::tensors::dims_of(proto)?);
        Ok(Self {
            data_type: proto.data_type,
            dims,
            literal: Literal::of(proto),
        })
    }
}

/// Why a rule gives no answer.
pub(crate) enum Stop {
    /// Not enough is known: the operator, or a dimension before it.
    Unknown,
    /// The inputs do not fit the operator.
    Mismatch(String),
}

pub(crate) type Ruled<T> = Result<T, Stop>;

pub(crate) fn mismatch<T>(why: impl Into<String>) -> Ruled<T> {
    Err(Stop::Mismatch(why.into()))
}

/// What is known of every value of a model at one batch size; filled node by node, in order of execution.
#[derive(Debug, Clone)]
pub(crate) struct Inference {
    opset: i64,
    values: HashMap<String, Value>,
}

impl Inference {
    /// Knows the inputs (every axis without a fixed size taken as `batch`) and the initialisers.
    pub(crate) fn start(model: &Model, batch: usize) -> Result<Self, GraphError> {
        let mut values = HashMap::new();
        for input in model.inputs() {
            values.insert(input.name.clone(), input_value(input, batch));
        }
        for weight in &model.graph().initializer {
            values.insert(weight.name.clone(), Value::constant(weight)?);
        }
        Ok(Self {
            opset: model.opset(),
            values,
        })
    }

    /// Knows every value of `model`.
    pub(crate) fn run(model: &Model, batch: usize) -> Result<Self, GraphError> {
        let mut inference = Self::start(model, batch)?;
        for node in model.nodes() {
            inference.step(node)?;
        }
        Ok(inference)
    }

    /// Takes in the next node.
    pub(crate) fn step(&mut self, node: &NodeProto) -> Result<(), GraphError> {
        let outputs = match rules::apply(&Context {
            node,
            opset: self.opset,
            values: &self.values,
        }) {
            Ok(outputs) => outputs,
            Err(Stop::Unknown) => Vec::new(),
            Err(Stop::Mismatch(why)) => {
                let (node, operator) = (node.label().into(), node.op_type.clone());
                return Err(GraphError::Shape { node, operator, why });
            }
        };
        let mut outputs = outputs.into_iter();
        for name in &node.output {
            let value = outputs.next().unwrap_or(Value::UNKNOWN);
            if !name.is_empty() {
                self.values.insert(name.clone(), value);
            }
        }
        Ok(())
    }

    /// `node` and what is known of its inputs.
    pub(crate) fn context<'a>(&'a self, node: &'a NodeProto) -> Context<'a> {
        Context {
            node,
            opset: self.opset,
            values: &self.values,
        }
    }

    /// Adds a constant that a node to come uses.
    pub(crate) fn add(&mut self, weight: &TensorProto) -> Result<(), GraphError> {
        self.values.insert(weight.name.clone(), Value::constant(weight)?);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or(&Value::UNKNOWN)
    }

    pub(crate) fn dims(&self, name: &str) -> Option<&[usize]> {
        self.get(name).dims.as_deref()
    }
}

fn input_value(input: &ValueInfo, batch: usize) -> Value {
    let tensor = input
        .r#type
        .as_ref()
        .and_then(|r#type| r#type.tensor_type.as_ref());
    let Some(tensor) = tensor else {
        return Value::UNKNOWN;
    };
    let dims = tensor.shape.as_ref().map(|shape| {
        let dims = shape.dim.iter().map(|dim| match dim.value {
            Some(DimensionValue::DimValue(size)) => usize::try_from(size).unwrap_or(batch),
            _ => batch,
        });
        dims.collect()
    });
    Value {
        data_type: tensor.elem_type,
        dims,
        literal: None,
    }
}

/// A node and what is known of its inputs.
pub(crate) struct Context<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) opset: i64,
    values: &'a HashMap<String, Value>,
}

impl<'a> Context<'a> {
    /// The input at `slot`, when the node has it.
    pub(crate) fn input(&self, slot: usize) -> Option<&'a Value> {
        self.values.get(self.node.input_name(slot)?)
    }

    pub(crate) fn data_type(&self, slot: usize) -> i32 {
        self.input(slot).map_or(0, |value| value.data_type)
    }

    /// The dimensions of the input at `slot`.
    pub(crate) fn dims(&self, slot: usize) -> Ruled<&'a [usize]> {
        self.input(slot)
            .and_then(|value| value.dims.as_deref())
            .ok_or(Stop::Unknown)
    }

    /// The dimensions of every input there is.
    pub(crate) fn all_dims(&self) -> Ruled<Vec<&'a [usize]>> {
        let there = (0..self.node.input.len()).filter(|&slot| self.node.input_name(slot).is_some());
        there.map(|slot| self.dims(slot)).collect()
    }

    /// The integers an optional input holds; `None` when the node leaves the input out.
    pub(crate) fn integers(&self, slot: usize) -> Ruled<Option<&'a [i64]>> {
        if self.node.input_name(slot).is_none() {
            return Ok(None);
        }
        let literal = self.input(slot).and_then(|value| value.literal.as_ref());
        literal.and_then(Literal::integers).map(Some).ok_or(Stop::Unknown)
    }

    /// Integers that are an attribute in older operator sets and an input in newer ones.
    pub(crate) fn attribute_or_input(&self, name: &str, slot: usize) -> Ruled<Option<&'a [i64]>> {
        match self.node.ints(name) {
            Some(values) => Ok(Some(values)),
            None => self.integers(slot),
        }
    }
}

/// `axis` of a tensor of this rank; negative ones count from the end.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Ruled<usize> {
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let from_start = if axis < 0 {
        axis.saturating_add(signed)
    } else {
        axis
    };
    match usize::try_from(from_start) {
        Ok(index) if index < rank => Ok(index),
        _ => mismatch(format!("axis {axis} of a tensor with {rank} axes")),
    }
}

/// The product of `dims`.
pub(crate) fn product(dims: &[usize]) -> Ruled<usize> {
    let product = dims.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim));
    product.map_or_else(
        || mismatch(format!("{dims:?} has more elements than this machine can count")),
        Ok,
    )
}
