use crate::TrainingError;
use crate::source::Source;
use crate::tape::{Form, Tape, Value};
use frostline_graph::onnx::NodeProto;
use frostline_graph::tensors::from_proto;
use frostline_tensor::Data;

/// A node of the suffix as a rule sees it: its attributes, its operands, the shape of its output.
pub(crate) struct Call<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) source: &'a Source<'a>,
    /// The floating-point operands.
    pub(crate) operands: Vec<Option<Value>>,
    /// The tensors of those of other types, which have no gradient.
    pub(crate) plain: Vec<Option<String>>,
    pub(crate) output_shape: Vec<usize>,
}

impl Call<'_> {
    /// The version of ONNX's operators the node is written for.
    pub(crate) fn opset(&self) -> i64 {
        self.source.suffix.opset()
    }

    /// The ONNX shape of the node's (first) output.
    pub(crate) fn output_shape(&self) -> &[usize] {
        &self.output_shape
    }

    /// Whether a gradient is wanted of an operand, and so of the output.
    pub(crate) fn is_differentiable(&self) -> bool {
        self.operands.iter().flatten().any(Value::is_differentiable)
    }

    /// The node's output, which `tensor` holds in `form`. A gradient is wanted of it where one is of an operand.
    pub(crate) fn output(&self, form: Form, tensor: String) -> Value {
        Value::new(&self.output_shape, form, tensor, self.is_differentiable())
    }

    /// Each output's ONNX shape, empty where it is unknown.
    pub(crate) fn output_shapes(&self) -> Vec<&[usize]> {
        let names = self.node.output.iter();
        names
            .map(|name| self.source.shapes.dims(name).unwrap_or_default())
            .collect()
    }

    /// The floating-point operand in `slot`.
    pub(crate) fn value(&self, slot: usize) -> Result<Value, TrainingError> {
        self.optional(slot).ok_or_else(|| {
            let name = self.node.input_name(slot).unwrap_or("(left out)");
            self.unsupported(format!(
                "its input {slot}, '{name}', is neither an activation nor a stored weight"
            ))
        })
    }

    /// The floating-point operand in `slot`, if it is there.
    pub(crate) fn optional(&self, slot: usize) -> Option<Value> {
        self.operands.get(slot).cloned().flatten()
    }

    /// Whether it reads floating-point values.
    pub(crate) fn reads_floats(&self) -> bool {
        self.operands.iter().any(Option::is_some)
    }

    /// Whether its first output is of another type than the suffix computes in.
    pub(crate) fn gives_others(&self) -> bool {
        let output = self.node.output_name(0);
        let known = output.and_then(|name| self.source.shapes.get(name));
        known.is_some_and(|known| known.data_type != self.source.float.data_type())
    }

    /// The tensors of all operands; `None` for what is no node of ONNX's own operators, or where one is not there.
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

    /// The tensor of the operand in `slot` that is of another type: indices, truth values.
    pub(crate) fn plain(&self, slot: usize) -> Result<&str, TrainingError> {
        let tensor = self.plain.get(slot).and_then(Option::as_deref);
        tensor.ok_or_else(|| self.unsupported(format!("its input {slot} is not of the type it should have")))
    }

    /// The floating-point constant in `slot`, stored or computed from shapes; `None` when the slot is left out.
    pub(crate) fn constant_floats(&self, slot: usize) -> Result<Option<Vec<f64>>, TrainingError> {
        let Some(name) = self.node.input_name(slot) else {
            return Ok(None);
        };
        if let Some(known) = self.source.shapes.numbers(name) {
            return Ok(Some(known.to_vec()));
        }
        let stored = self.source.constants.get(name).ok_or_else(|| {
            self.unsupported(format!(
                "its input {slot}, '{name}', is computed, but has to be a stored constant"
            ))
        })?;
        match from_proto(stored)?.into_data() {
            Data::F32(values) => Ok(Some(values.into_iter().map(f64::from).collect())),
            Data::F64(values) => Ok(Some(values)),
            _ => Err(self.unsupported(format!(
                "its input {slot}, '{name}', is not of a floating-point type"
            ))),
        }
    }

    /// The integers in `slot`, stored or computed from shapes; `None` when the slot is left out.
    pub(crate) fn constant_ints(&self, slot: usize) -> Result<Option<Vec<i64>>, TrainingError> {
        let Some(name) = self.node.input_name(slot) else {
            return Ok(None);
        };
        let known = self.source.shapes.integers(name).map(<[i64]>::to_vec);
        known
            .or_else(|| self.source.stored_integers(name))
            .map(Some)
            .ok_or_else(|| self.unsupported(format!("its input {slot}, '{name}', depends on the data")))
    }

    /// The integer attribute `name`, or `default`.
    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.node.int(name).unwrap_or(default)
    }

    /// The number attribute `name`, or `default`.
    pub(crate) fn float(&self, name: &str, default: f32) -> f64 {
        self.node.float(name).unwrap_or(default).into()
    }

    /// The attribute `name`: `count` sizes, or all `default`.
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
        sizes
            .filter(|sizes| sizes.len() == count)
            .ok_or_else(|| self.unsupported(format!("its attribute {name} is {values:?}, not {count} sizes")))
    }

    /// `axis`, counted from the end when negative, of a tensor of `rank`.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize, TrainingError> {
        let counted = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(counted)
            .ok()
            .filter(|axis| *axis < rank.max(1))
            .ok_or_else(|| self.unsupported(format!("its axis {axis} lies outside {rank} axes")))
    }

    /// The axes this node names: in attribute `axes` in older operator sets, in input `slot` in newer ones.
    pub(crate) fn axes(&self, slot: usize, rank: usize) -> Result<Option<Vec<usize>>, TrainingError> {
        let named = match self.node.ints("axes") {
            Some(axes) => Some(axes.to_vec()),
            None => self.constant_ints(slot)?,
        };
        named
            .map(|axes| axes.iter().map(|axis| self.axis(*axis, rank)).collect())
            .transpose()
    }

    /// The error for a use of this operator that has no rule.
    pub(crate) fn unsupported(&self, reason: impl Into<String>) -> TrainingError {
        TrainingError::Unsupported {
            operator: self.node.op_type.clone(),
            node: self.node.place(),
            reason: reason.into(),
        }
    }

    /// The error for an operator that has no rule at all.
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
