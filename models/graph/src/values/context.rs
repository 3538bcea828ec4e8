use super::{InferredValue, Literal, RuleResult, Unresolved, axis_of};
use crate::onnx::{NodeProto, TensorProto};
use crate::{GraphError, Model};
use std::collections::HashMap;

/// Properties of all values for a single batch size. The values are added node by node in the order of
/// execution.
#[derive(Debug, Clone)]
pub(crate) struct InferredValues {
    opset: i64,
    values: HashMap<String, InferredValue>,
}

impl InferredValues {
    /// Adds the inputs, with every open axis set to `batch`, and the initializers.
    pub(crate) fn start(model: &Model, batch: usize) -> Result<Self, GraphError> {
        let mut values = Self {
            opset: model.opset(),
            values: HashMap::new(),
        };
        for input in model.inputs() {
            values.insert(&input.name, InferredValue::input(input, batch));
        }
        for weight in &model.graph().initializer {
            values.add(weight)?;
        }
        Ok(values)
    }

    pub(crate) fn insert(&mut self, name: &str, value: InferredValue) {
        self.values.insert(name.to_owned(), value);
    }

    /// Adds a constant for a later node.
    pub(crate) fn add(&mut self, weight: &TensorProto) -> Result<(), GraphError> {
        self.insert(&weight.name, InferredValue::constant(weight)?);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> &InferredValue {
        self.values.get(name).unwrap_or(&InferredValue::UNKNOWN)
    }

    pub(crate) fn dims(&self, name: &str) -> Option<&[usize]> {
        self.get(name).dims.as_deref()
    }

    /// Returns the elements of a known vector of sizes.
    pub(crate) fn sizes(&self, name: &str) -> Option<Vec<usize>> {
        let values = self.get(name).literal.as_ref()?.integers()?;
        values.iter().map(|&value| usize::try_from(value).ok()).collect()
    }

    /// Returns `node` with the values of the inputs.
    pub(crate) fn context<'a>(&'a self, node: &'a NodeProto) -> Context<'a> {
        Context {
            node,
            opset: self.opset,
            values: &self.values,
        }
    }
}

/// Node with the values of the inputs.
pub(crate) struct Context<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) opset: i64,
    values: &'a HashMap<String, InferredValue>,
}

impl<'a> Context<'a> {
    /// Returns the input at `slot`, or `None` if the node omits it.
    pub(crate) fn input(&self, slot: usize) -> Option<&'a InferredValue> {
        self.values.get(self.node.input_name(slot)?)
    }

    pub(crate) fn data_type(&self, slot: usize) -> i32 {
        self.input(slot).map_or(0, |value| value.data_type)
    }

    pub(crate) fn dims(&self, slot: usize) -> RuleResult<&'a [usize]> {
        self.input(slot)
            .and_then(|value| value.dims.as_deref())
            .ok_or(Unresolved::Unknown)
    }

    /// Returns the dimensions of all inputs, not counting omitted inputs.
    pub(crate) fn all_dims(&self) -> RuleResult<Vec<&'a [usize]>> {
        let there = (0..self.node.input.len()).filter(|&slot| self.node.input_name(slot).is_some());
        there.map(|slot| self.dims(slot)).collect()
    }

    /// Returns a single output with the element type of the first input.
    pub(crate) fn output(&self, dims: Vec<usize>) -> RuleResult<Vec<InferredValue>> {
        Ok(vec![InferredValue::with_shape(self.data_type(0), dims)])
    }

    /// Returns a single output with the element type and dimensions of the first input.
    pub(crate) fn same_output(&self) -> RuleResult<Vec<InferredValue>> {
        self.output(self.dims(0)?.to_vec())
    }

    pub(crate) fn literal(&self, slot: usize) -> Option<&'a Literal> {
        self.input(slot)?.literal.as_ref()
    }

    /// Returns the known elements of the input at `slot`, broadcast to `dims`.
    pub(crate) fn stretched(&self, slot: usize, dims: &[usize]) -> Option<Literal> {
        self.literal(slot)?.stretched(self.dims(slot).ok()?, dims)
    }

    /// Returns the integers of an optional input, or `None` if the node omits it.
    pub(crate) fn integers(&self, slot: usize) -> RuleResult<Option<&'a [i64]>> {
        if self.node.input_name(slot).is_none() {
            return Ok(None);
        }
        let integers = self.literal(slot).and_then(Literal::integers);
        integers.map(Some).ok_or(Unresolved::Unknown)
    }

    /// Returns the first integer of an optional input.
    pub(crate) fn integer(&self, slot: usize) -> RuleResult<Option<i64>> {
        Ok(self.integers(slot)?.and_then(|values| values.first()).copied())
    }

    /// Returns the first integer of a required input.
    pub(crate) fn known_integer(&self, slot: usize) -> RuleResult<i64> {
        self.integer(slot)?.ok_or(Unresolved::Unknown)
    }

    /// Returns the integers of a required input.
    pub(crate) fn known_integers(&self, slot: usize) -> RuleResult<&'a [i64]> {
        self.integers(slot)?.ok_or(Unresolved::Unknown)
    }

    /// Returns the node's `axis`, or `default` if it is omitted, as an axis of the first input. Negative
    /// values count from the end.
    pub(crate) fn axis(&self, default: i64) -> RuleResult<usize> {
        axis_of(self.node.int("axis").unwrap_or(default), self.dims(0)?.len())
    }

    /// Returns integers that are an attribute in older operator sets and an input in newer ones, or `None` if
    /// the node omits both.
    pub(crate) fn attribute_or_input(&self, name: &str, slot: usize) -> RuleResult<Option<&'a [i64]>> {
        match self.node.ints(name) {
            Some(values) => Ok(Some(values)),
            None => self.integers(slot),
        }
    }

    /// Returns the same as [`Self::attribute_or_input`] for a required setting.
    pub(crate) fn setting(&self, name: &str, slot: usize) -> RuleResult<&'a [i64]> {
        self.attribute_or_input(name, slot)?.ok_or(Unresolved::Unknown)
    }
}
