use crate::TrainingError;
use crate::source::SourceGraph;
use crate::tape::{Tape, TensorForm, Value};
use frostline_graph::from_end;
use frostline_graph::onnx::NodeProto;
use frostline_graph::onnx::data_type::is_float;
use frostline_graph::tensors::{from_proto, numbers};

/// Node of the suffix with operands and output shape, passed to a rule.
pub(crate) struct NodeCall<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) source: &'a SourceGraph<'a>,
    /// Floating-point operands by input slot.
    pub(crate) operands: Vec<Option<Value>>,
    /// Tensors of all other operands by input slot, which never need gradients.
    pub(crate) plain: Vec<Option<String>>,
    /// ONNX shape of the first output.
    pub(crate) output_shape: Vec<usize>,
}

impl NodeCall<'_> {
    /// Returns the version of the ONNX operators that the node is written for.
    pub(crate) fn opset(&self) -> i64 {
        self.source.suffix.opset()
    }

    /// Returns true if an operand, and therefore the output, needs a gradient.
    pub(crate) fn is_differentiable(&self) -> bool {
        self.operands.iter().flatten().any(Value::is_differentiable)
    }

    /// Returns the node's output, stored in `tensor` in `form`. It needs a gradient if an operand does.
    pub(crate) fn output(&self, form: TensorForm, tensor: String) -> Value {
        Value::new(&self.output_shape, form, tensor, self.is_differentiable())
    }

    /// Returns the ONNX shapes of all outputs. Unknown shapes are empty.
    pub(crate) fn output_shapes(&self) -> Vec<&[usize]> {
        let names = self.node.output.iter();
        names
            .map(|name| self.source.shapes.dims(name).unwrap_or_default())
            .collect()
    }

    /// Returns the floating-point operand in `slot`.
    pub(crate) fn value(&self, slot: usize) -> Result<Value, TrainingError> {
        self.optional(slot).ok_or_else(|| {
            let name = self.node.input_name(slot).unwrap_or("(left out)");
            self.unsupported(format!(
                "input {slot} ('{name}') must be an activation or a stored weight"
            ))
        })
    }

    /// Returns the floating-point operand in `slot`, if present.
    pub(crate) fn optional(&self, slot: usize) -> Option<Value> {
        self.operands.get(slot).cloned().flatten()
    }

    pub(crate) fn reads_floats(&self) -> bool {
        self.operands.iter().any(Option::is_some)
    }

    /// Returns the element type of the first output, if it is known.
    pub(crate) fn output_type(&self) -> Option<i32> {
        let output = self.source.shapes.get(self.node.output_name(0)?)?;
        Some(output.data_type)
    }

    /// Returns true if the first output is not floating point.
    pub(crate) fn has_other_type(&self) -> bool {
        self.output_type().is_some_and(|code| !is_float(code))
    }

    /// Returns the tensors of all operands, with an empty name for an omitted input. Returns `None` for a
    /// node outside the standard operators, or if an operand is unknown.
    pub(crate) fn tensors(&self, tape: &mut Tape) -> Option<Vec<String>> {
        self.node.standard_operator()?;
        let mut tensors = Vec::new();
        for slot in 0..self.node.input.len() {
            tensors.push(match (self.node.input_name(slot), self.optional(slot)) {
                (None, _) => String::new(),
                (_, Some(value)) => tape.standard(&value),
                (_, None) => self.plain(slot).ok()?.to_owned(),
            });
        }
        Some(tensors)
    }

    /// Returns the tensor of the operand in `slot`, which is not floating point, such as indices or booleans.
    pub(crate) fn plain(&self, slot: usize) -> Result<&str, TrainingError> {
        let tensor = self.plain.get(slot).and_then(Option::as_deref);
        tensor.ok_or_else(|| self.unsupported(format!("input {slot} has the wrong type")))
    }

    /// Returns the floating-point constant in `slot`, stored or computed from shapes, or `None` if the input
    /// is omitted.
    pub(crate) fn constant_floats(&self, slot: usize) -> Result<Option<Vec<f64>>, TrainingError> {
        let Some(name) = self.node.input_name(slot) else {
            return Ok(None);
        };
        if let Some(known) = self.source.shapes.numbers(name) {
            return Ok(Some(known.to_vec()));
        }
        let stored =
            self.source.constants.get(name).ok_or_else(|| {
                self.unsupported(format!("input {slot} ('{name}') must be a stored constant"))
            })?;
        let values = numbers(from_proto(stored)?.data());
        values.map(Some).ok_or_else(|| {
            self.unsupported(format!("input {slot} ('{name}') must be a floating-point tensor"))
        })
    }

    /// Returns the integers in `slot`, stored or computed from shapes, or `None` if the input is omitted.
    pub(crate) fn constant_ints(&self, slot: usize) -> Result<Option<Vec<i64>>, TrainingError> {
        let Some(name) = self.node.input_name(slot) else {
            return Ok(None);
        };
        let known = self.source.shapes.integers(name).map(<[i64]>::to_vec);
        known
            .or_else(|| self.source.stored_integers(name))
            .map(Some)
            .ok_or_else(|| self.unsupported(format!("input {slot} ('{name}') must not depend on the data")))
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.node.int(name).unwrap_or(default)
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> f64 {
        self.node.float(name).unwrap_or(default).into()
    }

    /// Returns the `count` sizes in the attribute `name`. If the attribute is missing, all sizes are
    /// `default`.
    pub(crate) fn sizes(
        &self,
        name: &str,
        count: usize,
        default: usize,
    ) -> Result<Vec<usize>, TrainingError> {
        let Some(values) = self.node.ints(name).filter(|values| !values.is_empty()) else {
            return Ok(vec![default; count]);
        };
        let sizes: Option<Vec<usize>> = values.iter().map(|value| usize::try_from(*value).ok()).collect();
        sizes.filter(|sizes| sizes.len() == count).ok_or_else(|| {
            self.unsupported(format!("attribute {name} is {values:?}; expected {count} sizes"))
        })
    }

    /// Normalizes `axis` for the rank `rank`. Negative axes count from the end.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize, TrainingError> {
        usize::try_from(from_end(axis, rank as i64))
            .ok()
            .filter(|axis| *axis < rank.max(1))
            .ok_or_else(|| self.unsupported(format!("axis {axis} is out of range for {rank} axes")))
    }

    /// Returns the integers in the attribute `name` (older operator sets) or in the input `slot` (newer ones),
    /// or `None` if both are missing.
    pub(crate) fn ints(&self, name: &str, slot: usize) -> Result<Option<Vec<i64>>, TrainingError> {
        match self.node.ints(name) {
            Some(values) => Ok(Some(values.to_vec())),
            None => self.constant_ints(slot),
        }
    }

    /// Returns the axes in the attribute `axes` (older operator sets) or in the input `slot` (newer ones), or
    /// `None` if both are missing.
    pub(crate) fn axes(&self, slot: usize, rank: usize) -> Result<Option<Vec<usize>>, TrainingError> {
        self.ints("axes", slot)?
            .map(|axes| axes.iter().map(|axis| self.axis(*axis, rank)).collect())
            .transpose()
    }

    /// Returns the error for a use of this operator that has no rule.
    pub(crate) fn unsupported(&self, reason: impl Into<String>) -> TrainingError {
        TrainingError::Unsupported {
            operator: self.node.op_type.clone(),
            node: self.node.place(),
            reason: reason.into(),
        }
    }

    pub(crate) fn no_rule(&self) -> TrainingError {
        let domain = if self.node.standard_operator().is_some() {
            ""
        } else {
            &self.node.domain
        };
        let separator = if domain.is_empty() { "" } else { "." };
        TrainingError::NoRule {
            operator: format!("{domain}{separator}{}", self.node.op_type),
            node: self.node.place(),
        }
    }
}
