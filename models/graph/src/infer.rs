//! Shape inference that ignores the `value_info` of the file. It applies the rules of ONNX's operators
//! (<https://onnx.ai/onnx/operators/>) and evaluates chains of nodes that compute shapes.

use crate::onnx::{NodeProto, data_type};
use crate::operators;
use crate::values::{
    Context, InferredValue, InferredValues, Literal, MOST_ELEMENTS, Probes, RuleResult, Unresolved, mismatch,
};
use crate::{GraphError, Model};

/// Maximum number of axes of a value. Networks use up to about six. The limit prevents an untrusted model
/// from using long shapes everywhere.
const MOST_AXES: usize = 64;

impl InferredValues {
    pub(crate) fn infer(model: &Model, batch: usize) -> Result<Self, GraphError> {
        let mut values = Self::start(model, batch)?;
        for node in model.nodes() {
            values.step(node)?;
        }
        Ok(values)
    }

    /// Infers the outputs of the next node.
    pub(crate) fn step(&mut self, node: &NodeProto) -> Result<(), GraphError> {
        let outputs = match outputs(&self.context(node)) {
            Ok(outputs) => outputs,
            Err(Unresolved::Unknown) => Vec::new(),
            Err(Unresolved::Mismatch(why)) => {
                let operator = node.op_type.clone();
                let node = node.label().into();
                return Err(GraphError::Shape { node, operator, why });
            }
        };
        let mut outputs = outputs.into_iter();
        for name in &node.output {
            let value = outputs.next().unwrap_or(InferredValue::UNKNOWN);
            if !name.is_empty() {
                self.insert(name, value);
            }
        }
        Ok(())
    }
}

impl Probes {
    /// Infers the outputs of the next node at both batch sizes.
    pub(crate) fn step(&mut self, node: &NodeProto) -> Result<(), GraphError> {
        self.each().into_iter().try_for_each(|values| values.step(node))
    }
}

/// Infers the outputs of a node, including the elements of the first output if possible.
fn outputs(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let operator = operators::find(context.node).ok_or(Unresolved::Unknown)?;
    let mut outputs = (operator.shape)(context)?;
    let mut shapes = outputs.iter().filter_map(|output| output.dims.as_ref());
    if shapes.any(|dims| dims.len() > MOST_AXES) {
        return mismatch(format!("more than {MOST_AXES} axes"));
    }
    if let Some(first) = outputs.first_mut()
        && first.literal.is_none()
    {
        first.literal = computed(context, operator.literal, first);
    }
    Ok(outputs)
}

/// Returns the elements of a node's first output if there are few and they follow from known inputs.
fn computed(context: &Context<'_>, rule: operators::LiteralRule, output: &InferredValue) -> Option<Literal> {
    let dims = output.dims.as_deref()?;
    let elements = dims.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim))?;
    if elements > MOST_ELEMENTS {
        return None;
    }
    as_computed(rule(context, dims)?, output.data_type)
}

/// Converts a result to the precision of the given type, like an engine. Returns `None` if the result would
/// wrap around.
fn as_computed(literal: Literal, to: i32) -> Option<Literal> {
    match (&literal, to) {
        (Literal::Integers(_), data_type::INT64 | data_type::BOOL)
        | (Literal::Numbers(_), data_type::DOUBLE) => Some(literal),
        (Literal::Integers(values), data_type::INT32) => {
            let fit = values.iter().all(|&value| i32::try_from(value).is_ok());
            fit.then_some(literal)
        }
        (Literal::Integers(values), data_type::UINT8) => {
            let fit = values.iter().all(|&value| u8::try_from(value).is_ok());
            fit.then_some(literal)
        }
        (Literal::Numbers(values), data_type::FLOAT) => Some(Literal::Numbers(
            values.iter().map(|&value| as_single(value)).collect(),
        )),
        _ => None,
    }
}

/// Rounds once to single precision. For a sum, product, quotient or root in double precision, this gives the
/// same result as computing it in single precision.
#[allow(clippy::cast_possible_truncation)]
fn as_single(value: f64) -> f64 {
    f64::from(value as f32)
}
