//! Elementwise operators that broadcast the inputs.

use super::operator::HeadPart::Bias;
use super::operator::{LiteralRule, Operator};
use crate::onnx::data_type;
use crate::values::{
    Context, Growth, InferredValue, Line, Literal, RowUse, RowView, RuleResult, SampleAxis, broadcast_dims,
};
use std::cmp::Ordering;

pub(super) const OPERATORS: &[Operator] = &[
    broadcasting("Add", 1)
        .literal(|context, dims| arithmetic(context, dims, i64::checked_add, |a, b| Some(a + b)))
        .straight(|_| true)
        .weights(0..2)
        .constant(Some(masks))
        .head(Bias),
    comparing("And", 1)
        .literal(|context, dims| integers(context, dims, |a, b| Some(i64::from(a != 0 && b != 0)))),
    broadcasting("BitShift", 11).versions(None),
    broadcasting("Div", 1)
        .literal(|context, dims| arithmetic(context, dims, i64::checked_div, |a, b| Some(a / b)))
        .straight(|growth| growth.divides(Line::is_multiple_of)),
    comparing("Equal", 1)
        .literal(|context, dims| compared(context, dims, Ordering::is_eq))
        .straight(|growth| growth.compares(|difference| !difference.crosses_zero()))
        .flat(true),
    ordering("Greater", 1, |context, dims| {
        compared(context, dims, Ordering::is_gt)
    }),
    ordering("GreaterOrEqual", 12, |context, dims| {
        compared(context, dims, Ordering::is_ge)
    }),
    ordering("Less", 1, |context, dims| {
        compared(context, dims, Ordering::is_lt)
    }),
    ordering("LessOrEqual", 12, |context, dims| {
        compared(context, dims, Ordering::is_le)
    }),
    broadcasting("Max", 1)
        .literal(|context, dims| arithmetic(context, dims, |a, b| Some(a.max(b)), |a, b| Some(a.max(b))))
        .straight(keeps_order),
    broadcasting("Mean", 1),
    broadcasting("Min", 1)
        .literal(|context, dims| arithmetic(context, dims, |a, b| Some(a.min(b)), |a, b| Some(a.min(b))))
        .straight(keeps_order),
    broadcasting("Mod", 10)
        .literal(remainder)
        .straight(|growth| growth.divides(|line, divisor| line.slope.checked_rem(divisor) == Some(0)))
        .flat(true),
    broadcasting("Mul", 1)
        .literal(|context, dims| arithmetic(context, dims, i64::checked_mul, |a, b| Some(a * b)))
        .straight(|growth| growth.batch_dependent_slots().len() <= 1)
        .weights(0..2),
    comparing("Or", 1)
        .literal(|context, dims| integers(context, dims, |a, b| Some(i64::from(a != 0 || b != 0)))),
    broadcasting("Pow", 1).literal(|context, dims| {
        arithmetic(
            context,
            dims,
            |a, b| a.checked_pow(u32::try_from(b).ok()?),
            whole_power,
        )
    }),
    broadcasting("Sub", 1)
        .literal(|context, dims| arithmetic(context, dims, i64::checked_sub, |a, b| Some(a - b)))
        .straight(|_| true),
    broadcasting("Sum", 1),
    broadcasting("Where", 9)
        .shape(|context| broadcast(context, context.data_type(1)))
        .literal(chosen)
        .straight(|growth| !growth.batch_dependent_slots().contains(&0)),
    comparing("Xor", 1),
];

/// Returns true for an attention mask. The value is 0 for allowed positions, and -100 (as in Swin) or less
/// for masked positions.
fn masks(values: &[Vec<f64>]) -> bool {
    const FAR: f64 = -100.0;
    let mut values = values.iter().flatten();
    values.clone().all(|value| *value == 0.0 || *value <= FAR) && values.any(|value| *value <= FAR)
}

/// Returns the power if it is an integer, such as the side length of a square of patches. Rounding of other
/// powers differs between engines.
fn whole_power(base: f64, exponent: f64) -> Option<f64> {
    Some(base.powf(exponent)).filter(|power| power.fract() == 0.0)
}

const fn broadcasting(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, |context| broadcast(context, context.data_type(0))).rows(aligned)
}

/// Creates an operator that returns booleans.
const fn comparing(name: &'static str, since: i64) -> Operator {
    broadcasting(name, since).shape(|context| broadcast(context, data_type::BOOL))
}

const fn ordering(name: &'static str, since: i64, literal: LiteralRule) -> Operator {
    let compared = comparing(name, since).literal(literal);
    compared.straight(keeps_order).flat(true)
}

/// Broadcasts all inputs to one shape.
fn broadcast(context: &Context<'_>, data_type: i32) -> RuleResult<Vec<InferredValue>> {
    let dims = context
        .all_dims()?
        .into_iter()
        .try_fold(Vec::new(), |all, dims| broadcast_dims(&all, dims))?;
    Ok(vec![InferredValue::with_shape(data_type, dims)])
}

/// Requires that inputs with samples have them along the same axis, counted from the last.
fn aligned(view: &RowView<'_>) -> Option<SampleAxis> {
    let rank = view.output_dims()?.len();
    let mut found: Option<SampleAxis> = None;
    for slot in 0..view.node.input.len() {
        match view.input(slot) {
            None | Some(RowUse::Independent) => {}
            Some(RowUse::Position(_) | RowUse::Index(_) | RowUse::Mixed) => return None,
            Some(RowUse::PerSample(samples)) => {
                let samples = samples.on(samples.axis + rank.checked_sub(view.rank(slot)?)?);
                if found.is_some_and(|found| found != samples) {
                    return None;
                }
                found = Some(samples);
            }
        }
    }
    found
}

/// Returns true if the order of the two operands is the same for every batch.
fn keeps_order(growth: &Growth<'_>) -> bool {
    growth.compares(|difference| difference.sign().is_some())
}

/// Returns both operands of a node with two inputs.
fn pair(context: &Context<'_>, dims: &[usize]) -> Option<(Literal, Literal)> {
    let two = context.node.input.len() == 2;
    two.then(|| Some((context.stretched(0, dims)?, context.stretched(1, dims)?)))?
}

fn arithmetic(
    context: &Context<'_>,
    dims: &[usize],
    on_integers: fn(i64, i64) -> Option<i64>,
    on_numbers: fn(f64, f64) -> Option<f64>,
) -> Option<Literal> {
    Some(match pair(context, dims)? {
        (Literal::Integers(left), Literal::Integers(right)) => {
            let pairs = left.into_iter().zip(right);
            let all = pairs.map(|(left, right)| on_integers(left, right));
            Literal::Integers(all.collect::<Option<_>>()?)
        }
        (left, right) => {
            let pairs = left.numbers().into_iter().zip(right.numbers());
            let all = pairs.map(|(left, right)| on_numbers(left, right));
            Literal::Numbers(all.collect::<Option<_>>()?)
        }
    })
}

fn integers(context: &Context<'_>, dims: &[usize], function: fn(i64, i64) -> Option<i64>) -> Option<Literal> {
    arithmetic(context, dims, function, |_, _| None)
}

fn compared(context: &Context<'_>, dims: &[usize], holds: fn(Ordering) -> bool) -> Option<Literal> {
    let orders: Option<Vec<Ordering>> = match pair(context, dims)? {
        (Literal::Integers(left), Literal::Integers(right)) => {
            let pairs = left.iter().zip(&right);
            Some(pairs.map(|(left, right)| left.cmp(right)).collect())
        }
        (left, right) => {
            let left = left.numbers();
            let right = right.numbers();
            let pairs = left.iter().zip(&right);
            pairs.map(|(left, right)| left.partial_cmp(right)).collect()
        }
    };
    let orders = orders?.into_iter();
    Some(Literal::Integers(
        orders.map(|order| i64::from(holds(order))).collect(),
    ))
}

/// ONNX's default remainder has the sign of the divisor.
fn remainder(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    if context.node.int("fmod") == Some(1) {
        return None;
    }
    integers(context, dims, |left, right| {
        left.checked_rem(right)?.checked_add(right)?.checked_rem(right)
    })
}

fn chosen(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    fn choose<T>(conditions: &[i64], yes: Vec<T>, no: Vec<T>) -> Vec<T> {
        let pairs = conditions.iter().zip(yes.into_iter().zip(no));
        pairs
            .map(|(&condition, (yes, no))| if condition != 0 { yes } else { no })
            .collect()
    }
    let conditions = context.stretched(0, dims)?;
    let conditions = conditions.integers()?;
    Some(match (context.stretched(1, dims)?, context.stretched(2, dims)?) {
        (Literal::Integers(yes), Literal::Integers(no)) => Literal::Integers(choose(conditions, yes, no)),
        (yes, no) => Literal::Numbers(choose(conditions, yes.numbers(), no.numbers())),
    })
}
