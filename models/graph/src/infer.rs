//! Shape inference without the file's own `value_info`: the rules of ONNX's operators, as <https://onnx.ai/onnx/operators/>
//! states them, and the evaluation of chains that compute shapes.

use crate::onnx::{NodeProto, data_type};
use crate::operators;
use crate::values::{Context, Literal, MOST_ELEMENTS, Probes, Ruled, Unresolved, Value, Values, mismatch};
use crate::{GraphError, Model};

/// Axes a value may have. Networks use up to six or so; without a bound a stranger's model could make every shape long.
const MOST_AXES: usize = 64;

impl Values {
    /// Knows every value of `model`.
    pub(crate) fn infer(model: &Model, batch: usize) -> Result<Self, GraphError> {
        let mut values = Self::start(model, batch)?;
        for node in model.nodes() {
            values.step(node)?;
        }
        Ok(values)
    }

    /// Takes in the next node.
    pub(crate) fn step(&mut self, node: &NodeProto) -> Result<(), GraphError> {
        let outputs = match outputs(&self.context(node)) {
            Ok(outputs) => outputs,
            Err(Unresolved::Unknown) => Vec::new(),
            Err(Unresolved::Mismatch(why)) => {
                let (node, operator) = (node.label().into(), node.op_type.clone());
                return Err(GraphError::Shape { node, operator, why });
            }
        };
        let mut outputs = outputs.into_iter();
        for name in &node.output {
            let value = outputs.next().unwrap_or(Value::UNKNOWN);
            if !name.is_empty() {
                self.insert(name, value);
            }
        }
        Ok(())
    }
}

impl Probes {
    /// Takes in the next node.
    pub(crate) fn step(&mut self, node: &NodeProto) -> Result<(), GraphError> {
        self.each().into_iter().try_for_each(|values| values.step(node))
    }
}

/// The outputs of a node; what is computable from known values is computed.
fn outputs(context: &Context<'_>) -> Ruled<Vec<Value>> {
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

/// The elements of a node's first output, when they follow from known inputs and are few.
fn computed(context: &Context<'_>, rule: operators::LiteralRule, output: &Value) -> Option<Literal> {
    let dims = output.dims.as_deref()?;
    let elements = dims.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim))?;
    if elements > MOST_ELEMENTS {
        return None;
    }
    as_computed(rule(context, dims)?, output.data_type)
}

/// A result as an engine computes it, with the digits of its type: `None` where it would wrap around.
fn as_computed(literal: Literal, to: i32) -> Option<Literal> {
    let within =
        |values: &[i64], least: i64, most: i64| values.iter().all(|value| (least..=most).contains(value));
    match (&literal, to) {
        (Literal::Integers(_), data_type::INT64 | data_type::BOOL)
        | (Literal::Numbers(_), data_type::DOUBLE) => Some(literal),
        (Literal::Integers(values), data_type::INT32) => {
            within(values, i32::MIN.into(), i32::MAX.into()).then_some(literal)
        }
        (Literal::Integers(values), data_type::UINT8) => within(values, 0, u8::MAX.into()).then_some(literal),
        (Literal::Numbers(values), data_type::FLOAT) => Some(Literal::Numbers(
            values.iter().map(|&value| as_single(value)).collect(),
        )),
        _ => None,
    }
}

/// Rounded once to single precision, which for a sum, product, quotient or root in double precision is what computing it in single
/// precision gives.
#[allow(clippy::cast_possible_truncation)]
fn as_single(value: f64) -> f64 {
    f64::from(value as f32)
}
