//! Operators that create tensors from shapes and attributes.

use super::operator::Operator;
use super::repetition::filled;
use crate::onnx::data_type;
use crate::values::{
    Context, Growth, InferredValue, Line, Literal, MOST_ELEMENTS, RuleResult, Unresolved, Why, axis_of,
    from_end, literal_differs, mismatch, product, signed,
};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Constant", 1, constant),
    Operator::new("ConstantOfShape", 9, constant_of_shape)
        .literal(constant_of_shape_literal)
        .rows(filled),
    Operator::new("OneHot", 9, one_hot),
    Operator::new("Range", 11, range).growth(range_growth),
    Operator::new("Shape", 1, shape)
        .straight(|_| true)
        .reads_shape(true)
        .flat(true),
    Operator::new("Size", 1, size)
        .straight(|_| true)
        .reads_shape(true)
        .flat(true),
];

fn constant(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let node = context.node;
    let value = if let Some(tensor) = node.tensor("value") {
        InferredValue::constant(tensor).or_else(|error| mismatch(error.to_string()))?
    } else if let Some(value) = node.int("value_int") {
        InferredValue::known(data_type::INT64, vec![], Literal::Integers(vec![value]))
    } else if let Some(values) = node.ints("value_ints") {
        let literal = Literal::Integers(values.to_vec());
        InferredValue::known(data_type::INT64, vec![values.len()], literal)
    } else if let Some(value) = node.float("value_float") {
        InferredValue::known(data_type::FLOAT, vec![], Literal::Numbers(vec![value.into()]))
    } else if let Some(values) = node.attribute("value_floats").map(|attribute| &attribute.floats) {
        let numbers = values.iter().map(|&value| value.into()).collect();
        InferredValue::known(data_type::FLOAT, vec![values.len()], Literal::Numbers(numbers))
    } else {
        return Err(Unresolved::Unknown);
    };
    Ok(vec![value])
}

fn constant_of_shape(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.known_integers(0)?;
    let dims: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dims = dims.map_or_else(|| mismatch("a negative size"), Ok)?;
    let value = context.node.tensor("value");
    let data_type = value.map_or(data_type::FLOAT, |value| value.data_type);
    Ok(vec![InferredValue::with_shape(data_type, dims)])
}

fn constant_of_shape_literal(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    let elements = dims.iter().product();
    match context.node.tensor("value").map(Literal::from_proto) {
        None => Some(Literal::Numbers(vec![0.0; elements])),
        Some(value) => value?.pick(&vec![0; elements]),
    }
}

/// `OneHot` adds an axis of `depth` classes.
fn one_hot(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let mut dims = context.dims(0)?.to_vec();
    let depth = context.known_integer(1)?;
    let axis = axis_of(context.node.int("axis").unwrap_or(-1), dims.len() + 1)?;
    dims.insert(
        axis,
        usize::try_from(depth).or_else(|_| mismatch("a negative depth"))?,
    );
    Ok(vec![InferredValue::with_shape(context.data_type(2), dims)])
}

fn range(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let start = context.known_integer(0)?;
    let limit = context.known_integer(1)?;
    let delta = context.known_integer(2)?;
    if delta == 0 {
        return mismatch("a step of 0");
    }
    let span = i128::from(limit) - i128::from(start);
    let steps = (span + i128::from(delta) - i128::from(delta.signum())) / i128::from(delta);
    let count = usize::try_from(steps.max(0)).or_else(|_| mismatch("too many elements"))?;
    let literal = (count <= MOST_ELEMENTS).then(|| {
        let values = (0..signed(count)).map(|step| start.saturating_add(step.saturating_mul(delta)));
        Literal::Integers(values.collect())
    });
    Ok(vec![InferredValue {
        literal,
        ..InferredValue::with_shape(context.data_type(0), vec![count])
    }])
}

/// Requires a fixed start and a step of 1. The end must not be before the start for any batch.
fn range_growth(growth: &Growth<'_>) -> Result<(), Why> {
    if !growth.depends_on_batch() {
        return Ok(());
    }
    let fixed_start = !literal_differs(growth.input(0));
    let step = growth.line(2).filter(|line| line.slope == 0);
    let span = growth
        .line(1)
        .zip(growth.line(0))
        .and_then(|(limit, start)| limit.minus(start));
    let forward = span.and_then(Line::sign).is_some_and(|sign| sign >= 0);
    if fixed_start && forward && step.is_some_and(|step| step.offset == 1) {
        return Ok(());
    }
    Err("counts to an end that depends on the batch, not in steps of 1 from a fixed start")
}

/// Returns the dimensions of the input. Since operator set 15, attributes can select some of them.
fn shape(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let rank = signed(dims.len());
    let [start, end] = [("start", 0), ("end", rank)].map(|(name, default)| {
        let place = from_end(context.node.int(name).unwrap_or(default), rank);
        usize::try_from(place.clamp(0, rank)).unwrap_or_default()
    });
    let values: Vec<i64> = dims
        .get(start..end.max(start))
        .unwrap_or_default()
        .iter()
        .map(|&dim| signed(dim))
        .collect();
    let dims = vec![values.len()];
    Ok(vec![InferredValue::known(
        data_type::INT64,
        dims,
        Literal::Integers(values),
    )])
}

fn size(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let count = signed(product(context.dims(0)?)?);
    let literal = Literal::Integers(vec![count]);
    Ok(vec![InferredValue::known(data_type::INT64, vec![], literal)])
}
