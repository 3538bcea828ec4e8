//! Computing the values of shape chains: what exporters build out of `Shape` to say where a tensor goes.

use super::literal::{Literal, MOST_ELEMENTS, as_integer};
use super::{Context, Value, axis_of, layout};
use crate::onnx::data_type;

/// The elements of `output`, the first output of the node, when they follow from known inputs.
pub(crate) fn evaluate(context: &Context<'_>, operator: &str, output: &Value) -> Option<Literal> {
    let dims = output.dims.as_deref()?;
    let elements = dims.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim))?;
    if elements > MOST_ELEMENTS {
        return None;
    }
    let literal = match operator {
        "Identity" | "Dropout" | "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => {
            literal(context, 0).cloned()
        }
        "Cast" => cast(literal(context, 0)?, output.data_type),
        "Concat" => concat(context, dims),
        "Gather" => gather(context),
        "Slice" => slice(context, dims),
        "Transpose" => transpose(context, dims),
        "ConstantOfShape" => constant_of_shape(context, elements),
        "Expand" => stretched(context, 0, dims),
        "Where" => choose(context, dims),
        "Sqrt" | "Floor" | "Ceil" | "Neg" | "Abs" | "Not" | "Reciprocal" => {
            unary(operator, literal(context, 0)?)
        }
        "Mod" if context.node.int("fmod") == Some(1) => None,
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "Min" | "Max" | "Equal" | "Less" | "LessOrEqual"
        | "Greater" | "GreaterOrEqual" | "And" | "Or" => binary(context, operator, dims),
        "ReduceProd" | "ReduceSum" | "ReduceMax" | "ReduceMin" if elements == 1 => {
            reduce(operator, literal(context, 0)?)
        }
        _ => None,
    };
    as_computed(literal?, output.data_type)
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

fn literal<'a>(context: &Context<'a>, slot: usize) -> Option<&'a Literal> {
    context.input(slot)?.literal.as_ref()
}

fn cast(literal: &Literal, to: i32) -> Option<Literal> {
    Some(match (to, literal) {
        // What lies beyond the integers is cast differently by every machine.
        (data_type::INT64 | data_type::INT32, Literal::Numbers(values)) => {
            const BEYOND: f64 = 9_223_372_036_854_775_808.0;
            let cast = |&value: &f64| (value.abs() < BEYOND).then(|| as_integer(value));
            Literal::Integers(values.iter().map(cast).collect::<Option<_>>()?)
        }
        (data_type::INT64 | data_type::INT32, integers) => integers.clone(),
        (data_type::FLOAT | data_type::DOUBLE, values) => Literal::Numbers(values.numbers()),
        (data_type::BOOL, values) => Literal::Integers(
            values
                .numbers()
                .into_iter()
                .map(|value| i64::from(value != 0.0))
                .collect(),
        ),
        _ => return None,
    })
}

/// Only vectors: shapes are never joined any other way.
fn concat(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    if dims.len() != 1 {
        return None;
    }
    let mut all = Vec::new();
    for slot in 0..context.node.input.len() {
        all.extend_from_slice(literal(context, slot)?.integers()?);
    }
    Some(Literal::Integers(all))
}

fn gather(context: &Context<'_>) -> Option<Literal> {
    let ([size], Some(indices)) = (context.dims(0).ok()?, literal(context, 1)?.integers()) else {
        return None;
    };
    let positions: Option<Vec<usize>> = indices.iter().map(|&index| axis_of(index, *size).ok()).collect();
    literal(context, 0)?.pick(&positions?)
}

/// Steps in row-major order from one element to the next along each axis.
fn strides(dims: &[usize]) -> Option<Vec<i64>> {
    let mut step = 1_i64;
    let mut strides = Vec::with_capacity(dims.len());
    for &dim in dims.iter().rev() {
        strides.push(step);
        step = step.checked_mul(i64::try_from(dim).ok()?)?;
    }
    strides.reverse();
    Some(strides)
}

/// The elements at `start` and on from it by `steps` along axes of `dims`.
fn walk(literal: &Literal, start: i64, dims: &[usize], steps: &[i64]) -> Option<Literal> {
    if dims.contains(&0) {
        return literal.pick(&[]);
    }
    let mut positions = vec![start];
    for (&size, &step) in dims.iter().zip(steps) {
        let size = i64::try_from(size).ok()?;
        let along = |&from: &i64| (0..size).map(move |index| from + index * step);
        positions = positions.iter().flat_map(along).collect();
    }
    let positions: Option<Vec<usize>> = positions
        .into_iter()
        .map(|position| usize::try_from(position).ok())
        .collect();
    literal.pick(&positions?)
}

fn slice(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    let cuts = layout::slice_cuts(context).ok()?;
    let mut steps = strides(context.dims(0).ok()?)?;
    let mut start = 0;
    for (place, cut) in cuts.iter().enumerate() {
        let step = steps.get_mut(cut.axis)?;
        // An axis cut twice is not worth following.
        if cuts.iter().take(place).any(|other| other.axis == cut.axis) {
            return None;
        }
        start += cut.start.checked_mul(*step)?;
        *step = step.checked_mul(cut.step)?;
    }
    walk(literal(context, 0)?, start, dims, &steps)
}

fn transpose(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    let steps = strides(context.dims(0).ok()?)?;
    let order = layout::permutation(context, steps.len()).ok()?;
    let steps: Option<Vec<i64>> = order.iter().map(|&axis| steps.get(axis).copied()).collect();
    walk(literal(context, 0)?, 0, dims, &steps?)
}

fn constant_of_shape(context: &Context<'_>, elements: usize) -> Option<Literal> {
    match context.node.tensor("value").map(Literal::of) {
        None => Some(Literal::Numbers(vec![0.0; elements])),
        Some(value) => value?.pick(&vec![0; elements]),
    }
}

/// For each element of a tensor of `to`, the position of the element of a tensor of `from` that broadcasts onto it.
fn positions(from: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    if to.contains(&0) {
        return Some(Vec::new());
    }
    let mut positions = vec![0_usize];
    let lead = to.len().checked_sub(from.len())?;
    for (axis, &size) in to.iter().enumerate() {
        let own = axis
            .checked_sub(lead)
            .and_then(|axis| from.get(axis))
            .copied()
            .unwrap_or(1);
        let step = |start: &usize, index: usize| if own == 1 { *start } else { start * own + index };
        positions = positions
            .iter()
            .flat_map(|start| (0..size).map(move |index| step(start, index)))
            .collect();
    }
    Some(positions)
}

fn stretched(context: &Context<'_>, slot: usize, dims: &[usize]) -> Option<Literal> {
    let from = context.dims(slot).ok()?;
    literal(context, slot)?.pick(&positions(from, dims)?)
}

fn choose(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    let conditions = stretched(context, 0, dims)?;
    let pairs = (stretched(context, 1, dims)?, stretched(context, 2, dims)?);
    let conditions = conditions.integers()?.iter();
    Some(match pairs {
        (Literal::Integers(yes), Literal::Integers(no)) => {
            let chosen = conditions.zip(yes.into_iter().zip(no));
            Literal::Integers(
                chosen
                    .map(|(&condition, (yes, no))| if condition != 0 { yes } else { no })
                    .collect(),
            )
        }
        (yes, no) => {
            let chosen = conditions.zip(yes.numbers().into_iter().zip(no.numbers()));
            Literal::Numbers(
                chosen
                    .map(|(&condition, (yes, no))| if condition != 0 { yes } else { no })
                    .collect(),
            )
        }
    })
}

fn unary(operator: &str, literal: &Literal) -> Option<Literal> {
    Some(match (operator, literal) {
        ("Neg", Literal::Integers(values)) => {
            Literal::Integers(values.iter().map(|value| value.wrapping_neg()).collect())
        }
        ("Abs", Literal::Integers(values)) => {
            Literal::Integers(values.iter().map(|value| value.wrapping_abs()).collect())
        }
        ("Not", Literal::Integers(values)) => {
            Literal::Integers(values.iter().map(|&value| i64::from(value == 0)).collect())
        }
        (_, Literal::Numbers(values)) => {
            let function: fn(f64) -> f64 = match operator {
                "Sqrt" => f64::sqrt,
                "Floor" => f64::floor,
                "Ceil" => f64::ceil,
                "Neg" => |value| -value,
                "Abs" => f64::abs,
                "Reciprocal" => f64::recip,
                _ => return None,
            };
            Literal::Numbers(values.iter().map(|&value| function(value)).collect())
        }
        _ => return None,
    })
}

fn binary(context: &Context<'_>, operator: &str, dims: &[usize]) -> Option<Literal> {
    if context.node.input.len() != 2 {
        return None;
    }
    match (stretched(context, 0, dims)?, stretched(context, 1, dims)?) {
        (Literal::Integers(left), Literal::Integers(right)) => {
            let pairs = left.into_iter().zip(right);
            pairs
                .map(|(left, right)| on_integers(operator, left, right))
                .collect::<Option<_>>()
                .map(Literal::Integers)
        }
        (left, right) => {
            let pairs: Vec<(f64, f64)> = left.numbers().into_iter().zip(right.numbers()).collect();
            let compared: Option<Vec<i64>> = pairs
                .iter()
                .map(|&(left, right)| compare(operator, left.partial_cmp(&right)?))
                .collect();
            if let Some(compared) = compared {
                return Some(Literal::Integers(compared));
            }
            pairs
                .into_iter()
                .map(|(left, right)| on_numbers(operator, left, right))
                .collect::<Option<_>>()
                .map(Literal::Numbers)
        }
    }
}

fn compare(operator: &str, order: std::cmp::Ordering) -> Option<i64> {
    Some(i64::from(match operator {
        "Equal" => order.is_eq(),
        "Less" => order.is_lt(),
        "LessOrEqual" => order.is_le(),
        "Greater" => order.is_gt(),
        "GreaterOrEqual" => order.is_ge(),
        _ => return None,
    }))
}

fn on_integers(operator: &str, left: i64, right: i64) -> Option<i64> {
    if let Some(truth) = compare(operator, left.cmp(&right)) {
        return Some(truth);
    }
    match operator {
        "Add" => left.checked_add(right),
        "Sub" => left.checked_sub(right),
        "Mul" => left.checked_mul(right),
        "Div" => left.checked_div(right),
        // ONNX's default remainder has the sign of the divisor.
        "Mod" => left.checked_rem(right)?.checked_add(right)?.checked_rem(right),
        "Pow" => left.checked_pow(u32::try_from(right).ok()?),
        "Min" => Some(left.min(right)),
        "Max" => Some(left.max(right)),
        "And" => Some(i64::from(left != 0 && right != 0)),
        "Or" => Some(i64::from(left != 0 || right != 0)),
        _ => None,
    }
}

fn on_numbers(operator: &str, left: f64, right: f64) -> Option<f64> {
    Some(match operator {
        "Add" => left + right,
        "Sub" => left - right,
        "Mul" => left * right,
        "Div" => left / right,
        "Min" => left.min(right),
        "Max" => left.max(right),
        _ => return None,
    })
}

fn reduce(operator: &str, literal: &Literal) -> Option<Literal> {
    let values = literal.integers()?;
    let value = match operator {
        "ReduceProd" => values
            .iter()
            .try_fold(1_i64, |all, &value| all.checked_mul(value))?,
        "ReduceSum" => values
            .iter()
            .try_fold(0_i64, |all, &value| all.checked_add(value))?,
        "ReduceMax" => values.iter().copied().max()?,
        "ReduceMin" => values.iter().copied().min()?,
        _ => return None,
    };
    Some(Literal::Integers(vec![value]))
}
