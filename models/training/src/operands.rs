use crate::TrainingError;
use crate::call::NodeCall;
use crate::source::SourceGraph;
use crate::tape::{Tape, TensorForm, Value};
use frostline_graph::onnx::data_type::is_float;
use frostline_graph::onnx::{NodeProto, TensorProto};
use std::collections::HashMap;

/// Tensors in the emitted graph by name in the suffix.
pub(crate) struct Operands<'a> {
    source: &'a SourceGraph<'a>,
    values: HashMap<&'a str, Value>,
    /// Tensors that are not floating point, such as indices and booleans, and never need gradients.
    plain: HashMap<&'a str, String>,
    /// Scale and zero point of quantized values. `values` contains the numbers that they represent.
    scales: HashMap<&'a str, [Option<&'a str>; 2]>,
    /// Constants read by the emitted graph.
    stored: Vec<TensorProto>,
}

impl<'a> Operands<'a> {
    pub(crate) fn new(source: &'a SourceGraph<'a>) -> Self {
        Self {
            source,
            values: HashMap::new(),
            plain: HashMap::new(),
            scales: HashMap::new(),
            stored: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, name: &'a str, value: Value) {
        self.values.insert(name, value);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.values.get(name).cloned()
    }

    /// Inserts the quantized value `name` with the numbers that it represents.
    pub(crate) fn insert_quantized(&mut self, name: &'a str, value: Value, scale: [Option<&'a str>; 2]) {
        self.insert(name, value);
        self.scales.insert(name, scale);
    }

    /// Returns the scale and the zero point of the quantized value `name`, or `None` if it is not quantized.
    pub(crate) fn scale(&self, name: &str) -> Option<[Option<&'a str>; 2]> {
        self.scales.get(name).copied()
    }

    pub(crate) fn into_stored(self) -> Vec<TensorProto> {
        self.stored
    }

    /// Returns `node` with all operands.
    pub(crate) fn call(&mut self, tape: &mut Tape, node: &'a NodeProto) -> NodeCall<'a> {
        let operands = node.input.iter().map(|name| self.value(tape, name)).collect();
        let plain = node.input.iter().map(|name| self.other(tape, name)).collect();
        let output = node.output_name(0).unwrap_or_default();
        NodeCall {
            node,
            source: self.source,
            operands,
            plain,
            output_shape: self.source.shapes.dims(output).unwrap_or_default().to_vec(),
        }
    }

    /// Returns the activation, weight or floating-point constant `name` of the suffix, or `None` if it is not
    /// floating point or is unknown.
    fn value(&mut self, tape: &mut Tape, name: &'a str) -> Option<Value> {
        if let Some(value) = self.get(name) {
            return Some(value);
        }
        let known = self.source.shapes.get(name)?;
        if !is_float(known.data_type) {
            return None;
        }
        let tensor = match self.source.shapes.numbers(name) {
            Some(numbers) => tape.emit.floats(&known.dims, numbers),
            None => self.stored(name)?,
        };
        let value = Value::new(&known.dims, TensorForm::Standard, tensor, false);
        self.insert(name, value.clone());
        Some(value)
    }

    /// Returns the tensor `name` of the suffix, if it is not floating point.
    fn other(&mut self, tape: &mut Tape, name: &'a str) -> Option<String> {
        if let Some(tensor) = self.plain.get(name) {
            return Some(tensor.clone());
        }
        let known = self.source.shapes.get(name)?;
        if is_float(known.data_type) {
            return None;
        }
        let integers = self.source.shapes.integers(name);
        let tensor = match integers {
            Some(integers) => tape.emit.integers(known.data_type, &known.dims, integers),
            None => None,
        };
        let tensor = tensor.or_else(|| self.stored(name))?;
        self.plain.insert(name, tensor.clone());
        Some(tensor)
    }

    fn stored(&mut self, name: &str) -> Option<String> {
        let stored = *self.source.constants.get(name)?;
        let tensor = format!("{name}/constant");
        self.stored.push(TensorProto {
            name: tensor.clone(),
            ..self.source.float.convert(stored)?
        });
        Some(tensor)
    }

    /// Emits an unchanged copy of a node without a gradient.
    pub(crate) fn copy(&mut self, tape: &mut Tape, call: &NodeCall<'a>) -> Result<(), TrainingError> {
        let tensors = call.tensors(tape).filter(|_| !call.node.is_random());
        let tensors = tensors.ok_or_else(|| call.no_rule())?;
        let inputs: Vec<&str> = tensors.iter().map(String::as_str).collect();
        let outputs = tape.emit.copy(call.node, &inputs);
        self.insert_outputs(call.node, &outputs, 0);
        Ok(())
    }

    /// Inserts the outputs of a node from number `first` on, which do not need a gradient.
    pub(crate) fn insert_outputs(&mut self, node: &'a NodeProto, tensors: &[String], first: usize) {
        for (name, tensor) in node.output.iter().zip(tensors).skip(first) {
            match self.source.shapes.get(name) {
                Some(known) if is_float(known.data_type) => {
                    let value = Value::new(&known.dims, TensorForm::Standard, tensor.clone(), false);
                    self.insert(name, value);
                }
                _ => {
                    self.plain.insert(name, tensor.clone());
                }
            }
        }
    }
}
