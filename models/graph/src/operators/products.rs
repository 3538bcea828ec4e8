//! Matrix products.

use super::operator::HeadPart::{Layer, Product};
use super::operator::Operator;
use crate::equation::Equation;
use crate::values::{
    Context, InferredValue, NodeSizes, RowUse, RowView, RuleResult, SampleAxis, Unresolved, as_number,
    broadcast_dims, mismatch, signed,
};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Attention", 23, attention)
        .rows(attention_rows)
        .work(|sizes| 2.0 * sizes.input(0) * sizes.axis(1, sizes.rank(1).saturating_sub(2))),
    Operator::new("Einsum", 12, einsum)
        .rows(einsum_rows)
        .work(einsum_products)
        .weights(0..usize::MAX),
    Operator::new("Gemm", 1, gemm)
        .rows(gemm_rows)
        .work(gemm_products)
        .weights(0..3)
        .numbers(true)
        .head(Layer),
    Operator::new("MatMul", 1, matmul)
        .rows(matmul_rows)
        .work(|sizes| sizes.output() * sizes.last_axis(0))
        .weights(0..2)
        .numbers(true)
        .head(Product),
];

/// Returns the rows and columns of an operand of a `Gemm`, which the attribute `flag` transposes.
fn matrix(context: &Context<'_>, slot: usize, flag: &str) -> RuleResult<(usize, usize)> {
    match (context.dims(slot)?, context.node.int(flag).unwrap_or(0)) {
        (&[rows, columns], 0) => Ok((rows, columns)),
        (&[rows, columns], _) => Ok((columns, rows)),
        (dims, _) => mismatch(format!("{dims:?} is not a matrix")),
    }
}

/// Multiplies two matrices, each optionally transposed, and adds a third that is broadcast to the product.
fn gemm(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let (rows, depth) = matrix(context, 0, "transA")?;
    let (other, columns) = matrix(context, 1, "transB")?;
    if depth != other {
        return mismatch(format!("{rows}x{depth} times {other}x{columns}"));
    }
    let dims = vec![rows, columns];
    if context.node.input_name(2).is_some() && broadcast_dims(&dims, context.dims(2)?)? != dims {
        return mismatch(format!("{:?} does not add onto {dims:?}", context.dims(2)?));
    }
    context.output(dims)
}

fn gemm_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    if !view.is_parameter(2) {
        return None;
    }
    let rows = usize::from(view.node.int("transA").unwrap_or(0) != 0);
    let columns = usize::from(view.node.int("transB").unwrap_or(0) == 0);
    match (view.samples(0), view.samples(1)) {
        (Some(samples), None) if view.is_parameter(1) && samples.axis == rows => Some(samples.on(0)),
        (None, Some(samples)) if view.is_parameter(0) && samples.axis == columns => Some(samples.on(1)),
        _ => None,
    }
}

fn gemm_products(sizes: &NodeSizes<'_>) -> f64 {
    let depth = usize::from(sizes.node.int("transA").unwrap_or(0) == 0);
    sizes.output() * sizes.axis(0, depth)
}

/// Implements the rules of NumPy. Leading axes are broadcast. A vector becomes a matrix with a single row or
/// column, which is removed from the result.
fn matmul(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let left = context.dims(0)?;
    let right = context.dims(1)?;
    let (left_lead, rows, depth) = match left {
        [depth] => (&[][..], None, *depth),
        [lead @ .., rows, depth] => (lead, Some(*rows), *depth),
        [] => return mismatch("a scalar is not a matrix"),
    };
    let (right_lead, other, columns) = match right {
        [other] => (&[][..], *other, None),
        [lead @ .., other, columns] => (lead, *other, Some(*columns)),
        [] => return mismatch("a scalar is not a matrix"),
    };
    if depth != other {
        return mismatch(format!("{left:?} times {right:?}"));
    }
    let mut dims = broadcast_dims(left_lead, right_lead)?;
    dims.extend(rows.into_iter().chain(columns));
    context.output(dims)
}

/// Supports samples along the rows of the left operand, the columns of the right operand, and leading axes.
/// The axis of the sum must not contain samples.
fn matmul_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let left_rank = view.rank(0)?;
    let right_rank = view.rank(1)?;
    if left_rank < 2 || right_rank < 2 {
        return None;
    }
    let rank = left_rank.max(right_rank);
    let left = view
        .samples(0)
        .map(|samples| samples.on(samples.axis + rank - left_rank));
    let right = view
        .samples(1)
        .map(|samples| samples.on(samples.axis + rank - right_rank));
    match (left, right) {
        (Some(samples), None) if view.is_parameter(1) && samples.axis != rank - 1 => Some(samples),
        (None, Some(samples)) if view.is_parameter(0) && samples.axis != rank - 2 => Some(samples),
        (Some(left), Some(right)) if left == right && left.axis < rank - 2 => Some(left),
        _ => None,
    }
}

/// Returns the dimensions `[batch, heads, tokens, width]` for queries, keys or values. If the input has three
/// axes, the last axis contains all heads.
fn heads(context: &Context<'_>, slot: usize, count: &str) -> RuleResult<[usize; 4]> {
    let heads = usize::try_from(context.node.int(count).unwrap_or(1)).unwrap_or(0);
    match *context.dims(slot)? {
        [batch, heads, tokens, width] => Ok([batch, heads, tokens, width]),
        [batch, tokens, width] if heads > 0 && width.is_multiple_of(heads) => {
            Ok([batch, heads, tokens, width / heads])
        }
        ref dims => mismatch(format!("{dims:?} cannot be split into heads")),
    }
}

/// Infers only the result, not the cached keys and values or the scores.
fn attention(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    if (4..context.node.input.len()).any(|slot| context.node.input_name(slot).is_some()) {
        return Err(Unresolved::Unknown);
    }
    let [batch, count, tokens, depth] = heads(context, 0, "q_num_heads")?;
    let key = heads(context, 1, "kv_num_heads")?;
    let [_, groups, keys, width] = heads(context, 2, "kv_num_heads")?;
    if key != [batch, groups, keys, depth] || groups == 0 || !count.is_multiple_of(groups) {
        return mismatch(format!(
            "queries {:?} do not match keys {:?} and their values",
            context.dims(0)?,
            context.dims(1)?
        ));
    }
    context.output(match context.dims(0)?.len() {
        3 => vec![batch, tokens, count.saturating_mul(width)],
        _ => vec![batch, count, tokens, width],
    })
}

/// Samples stay independent along the first axis if the mask is the same for all.
fn attention_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let first = Some(SampleAxis::plain(0));
    let apart = (0..3).all(|slot| view.samples(slot) == first) && view.is_parameter(3);
    apart.then_some(first)?
}

/// Returns the equation and the lengths of the axes.
fn einsum_parts(context: &Context<'_>) -> RuleResult<(Equation, Vec<(char, usize)>)> {
    let all = context.all_dims()?;
    let ranks: Vec<usize> = all.iter().map(|dims| dims.len()).collect();
    let text = context.node.text("equation").unwrap_or_default();
    let equation = Equation::parse(text, &ranks).ok_or(Unresolved::Unknown)?;
    let mut lengths: Vec<(char, usize)> = Vec::new();
    for (letters, dims) in equation.operands.iter().zip(all) {
        for (&letter, &dim) in letters.iter().zip(dims) {
            match lengths.iter().find(|(known, _)| *known == letter) {
                Some(&(_, length)) if length != dim => {
                    return mismatch(format!("axis {letter} is {length} and {dim}"));
                }
                Some(_) => {}
                None => lengths.push((letter, dim)),
            }
        }
    }
    Ok((equation, lengths))
}

fn einsum_dims(context: &Context<'_>) -> RuleResult<Vec<usize>> {
    let (equation, lengths) = einsum_parts(context)?;
    Ok(equation
        .output
        .iter()
        .filter_map(|letter| lengths.iter().find(|(known, _)| known == letter))
        .map(|(_, length)| *length)
        .collect())
}

fn einsum(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    context.output(einsum_dims(context)?)
}

/// Samples stay independent along a letter of the result if each operand with samples has them on this
/// letter.
fn einsum_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let (equation, _) = einsum_parts(&view.context()).ok()?;
    let mut found: Option<(char, SampleAxis)> = None;
    for (slot, letters) in equation.operands.iter().enumerate() {
        let samples = match view.input(slot)? {
            RowUse::Independent => continue,
            RowUse::Position(_) | RowUse::Index(_) | RowUse::Mixed => return None,
            RowUse::PerSample(samples) => samples,
        };
        let letter = *letters.get(samples.axis)?;
        if found.is_some_and(|(other, same)| other != letter || same.on(0) != samples.on(0)) {
            return None;
        }
        found = Some((letter, samples));
    }
    let (letter, samples) = found?;
    let axis = equation.output.iter().position(|other| *other == letter)?;
    equation
        .operands
        .iter()
        .enumerate()
        .all(|(slot, letters)| view.is_parameter(slot) != letters.contains(&letter))
        .then(|| samples.on(axis))
}

/// Returns the number of combinations of letters, which is the number of products.
fn einsum_products(sizes: &NodeSizes<'_>) -> f64 {
    let parts = einsum_parts(&sizes.probes.context(sizes.node));
    parts.map_or(0.0, |(_, lengths)| {
        let lengths = lengths.iter().map(|(_, length)| as_number(signed(*length)));
        lengths.product()
    })
}
