//! Elementwise operators. An output element depends on the input element at the same position and on
//! parameters.

use super::operator::Effort::Passing;
use super::operator::HeadPart::Tail;
use super::operator::Operator;
use crate::onnx::data_type;
use crate::values::{
    Context, InferredValue, Literal, RowView, RuleResult, SampleAxis, as_integer, as_number,
};

pub(super) const OPERATORS: &[Operator] = &[
    pointwise("Abs", 1).literal(|context, _| either(context, i64::wrapping_abs, f64::abs)),
    Operator::new("Cast", 1, cast)
        .literal(cast_literal)
        .rows(|view| view.samples(0))
        .straight(|growth| matches!(target(&growth.small), data_type::INT64 | data_type::INT32))
        .shrinks(true)
        .effort(Passing)
        .head(Tail),
    pointwise("CastLike", 15).shape(|context| of_type(context, context.data_type(1))),
    flat("Ceil", 1).literal(|context, _| numbers(context, f64::ceil)),
    activation("Celu", 12),
    pointwise("Clip", 1).literal(clipped).effort(Passing),
    flat("Cos", 7),
    pointwise("Dropout", 1)
        .shape(dropout)
        .literal(|context, _| context.literal(0).cloned())
        .rows(dropout_rows)
        .effort(Passing)
        .head(Tail),
    activation("Elu", 1).effort(Passing),
    activation("Erf", 9),
    pointwise("Exp", 1),
    flat("Floor", 1).literal(|context, _| numbers(context, f64::floor)),
    activation("Gelu", 20),
    activation("HardSigmoid", 1).effort(Passing),
    activation("HardSwish", 14).effort(Passing),
    pointwise("Identity", 1)
        .literal(|context, _| context.literal(0).cloned())
        .straight(|growth| growth.only_first_depends_on_batch())
        .rearranges(true)
        .effort(Passing)
        .head(Tail),
    flat("IsInf", 10).shape(truth),
    flat("IsNaN", 9).shape(truth),
    activation("LeakyRelu", 1).effort(Passing),
    pointwise("Log", 1),
    activation("Mish", 18),
    pointwise("Neg", 1)
        .literal(|context, _| either(context, i64::wrapping_neg, |value| -value))
        .straight(|_| true),
    flat("Not", 1).literal(negated),
    activation("PRelu", 1).weights(1..2).numbers(true).effort(Passing),
    pointwise("Reciprocal", 1).literal(|context, _| numbers(context, f64::recip)),
    activation("Relu", 1).effort(Passing).head(Tail),
    flat("Round", 11),
    activation("Selu", 1),
    pointwise("Shrink", 9),
    activation("Sigmoid", 1).effort(Passing),
    flat("Sign", 9),
    flat("Sin", 7),
    activation("Softplus", 1),
    activation("Softsign", 1),
    pointwise("Sqrt", 1).literal(|context, _| numbers(context, f64::sqrt)),
    activation("Swish", 24),
    pointwise("Tan", 7),
    activation("Tanh", 1),
    activation("ThresholdedRelu", 10),
];

const fn pointwise(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, |context| context.same_output())
        .rows(|view| view.only_samples())
        .shrinks(true)
}

const fn activation(name: &'static str, since: i64) -> Operator {
    pointwise(name, since).activates(true)
}

/// Creates an operator without a useful gradient.
const fn flat(name: &'static str, since: i64) -> Operator {
    pointwise(name, since).flat(true)
}

/// Returns the shape of the first input with another element type.
fn of_type(context: &Context<'_>, data_type: i32) -> RuleResult<Vec<InferredValue>> {
    Ok(vec![InferredValue::with_shape(
        data_type,
        context.dims(0)?.to_vec(),
    )])
}

fn truth(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    of_type(context, data_type::BOOL)
}

fn numbers(context: &Context<'_>, function: fn(f64) -> f64) -> Option<Literal> {
    match context.literal(0)? {
        Literal::Numbers(values) => Some(Literal::Numbers(
            values.iter().map(|&value| function(value)).collect(),
        )),
        Literal::Integers(_) => None,
    }
}

fn either(context: &Context<'_>, on_integers: fn(i64) -> i64, on_numbers: fn(f64) -> f64) -> Option<Literal> {
    match context.literal(0)?.integers() {
        Some(values) => Some(Literal::Integers(
            values.iter().map(|&value| on_integers(value)).collect(),
        )),
        None => numbers(context, on_numbers),
    }
}

/// Returns a bound of a `Clip`, which is an attribute in older operator sets and an input in newer ones.
/// Returns `open` if the node omits both, and `None` if the input is unknown.
fn clip_bound(context: &Context<'_>, slot: usize, name: &str, open: f64) -> Option<f64> {
    match context.node.input_name(slot) {
        Some(_) => context.literal(slot)?.numbers().first().copied(),
        None => Some(context.node.float(name).map_or(open, f64::from)),
    }
}

/// Clips to bounds that are known as well.
fn clipped(context: &Context<'_>, _: &[usize]) -> Option<Literal> {
    let low = clip_bound(context, 1, "min", f64::NEG_INFINITY)?;
    let high = clip_bound(context, 2, "max", f64::INFINITY)?;
    Some(match context.literal(0)? {
        Literal::Numbers(values) => {
            Literal::Numbers(values.iter().map(|value| value.max(low).min(high)).collect())
        }
        Literal::Integers(values) => Literal::Integers(
            values
                .iter()
                .map(|&value| match as_number(value).max(low).min(high) {
                    same if same == as_number(value) => value,
                    bound => as_integer(bound),
                })
                .collect(),
        ),
    })
}

fn negated(context: &Context<'_>, _: &[usize]) -> Option<Literal> {
    let values = context.literal(0)?.integers()?.iter();
    Some(Literal::Integers(
        values.map(|&value| i64::from(value == 0)).collect(),
    ))
}

/// Returns the element type that a `Cast` produces.
fn target(context: &Context<'_>) -> i32 {
    let to = context.node.int("to").and_then(|to| i32::try_from(to).ok());
    to.unwrap_or_default()
}

fn cast(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    of_type(context, target(context))
}

fn cast_literal(context: &Context<'_>, _: &[usize]) -> Option<Literal> {
    Some(match (target(context), context.literal(0)?) {
        // Casts of numbers that exceed the integers differ between machines.
        (data_type::INT64 | data_type::INT32, Literal::Numbers(values)) => {
            const BEYOND: f64 = 9_223_372_036_854_775_808.0;
            Literal::Integers(
                values
                    .iter()
                    .map(|&value| (value.abs() < BEYOND).then(|| as_integer(value)))
                    .collect::<Option<_>>()?,
            )
        }
        (data_type::INT64 | data_type::INT32, integers) => integers.clone(),
        (data_type::FLOAT | data_type::DOUBLE, values) => Literal::Numbers(values.numbers()),
        (data_type::BOOL, values) => {
            let values = values.numbers().into_iter();
            Literal::Integers(values.map(|value| i64::from(value != 0.0)).collect())
        }
        _ => return None,
    })
}

/// Returns the output and the mask, which have the same shape.
fn dropout(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let mut outputs = context.same_output()?;
    outputs.extend(truth(context)?);
    Ok(outputs)
}

/// `Dropout` is the identity at inference. In training mode it draws random numbers.
fn dropout_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let trains = match view.node.input_name(2) {
        None => false,
        Some(_) => view.context().integers(2).ok().flatten() != Some(&[0][..]),
    };
    (!trains && view.is_parameter(1)).then(|| view.samples(0))?
}
