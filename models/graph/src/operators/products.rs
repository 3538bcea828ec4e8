//! Matrix products.

use super::operator::HeadPart::{Layer, Product};
use super::operator::Operator;
use crate::values::{Context, RowView, Ruled, Samples, Sizes, Value, broadcast_dims, mismatch};

pub(super) const OPERATORS: &[Operator] = &[
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

/// Two matrices, each possibly transposed, and a third that broadcasts onto their product.
fn gemm(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let matrix = |slot, flag: &str| match (context.dims(slot)?, context.node.int(flag).unwrap_or(0)) {
        (&[rows, columns], 0) => Ok((rows, columns)),
        (&[rows, columns], _) => Ok((columns, rows)),
        (dims, _) => mismatch(format!("{dims:?} is no matrix")),
    };
    let ((rows, depth), (other, columns)) = (matrix(0, "transA")?, matrix(1, "transB")?);
    if depth != other {
        return mismatch(format!("{rows}x{depth} times {other}x{columns}"));
    }
    let dims = vec![rows, columns];
    if context.node.input_name(2).is_some() && broadcast_dims(&dims, context.dims(2)?)? != dims {
        return mismatch(format!("{:?} does not add onto {dims:?}", context.dims(2)?));
    }
    context.output(dims)
}

fn gemm_rows(view: &RowView<'_>) -> Option<Samples> {
    let transposed = |flag| view.node.int(flag).unwrap_or(0) != 0;
    if !view.is_parameter(2) {
        return None;
    }
    let rows = if transposed("transA") { 1 } else { 0 };
    let columns = if transposed("transB") { 0 } else { 1 };
    match (view.samples(0), view.samples(1)) {
        (Some(samples), None) if view.is_parameter(1) && samples.axis == rows => Some(samples.on(0)),
        (None, Some(samples)) if view.is_parameter(0) && samples.axis == columns => Some(samples.on(1)),
        _ => None,
    }
}

fn gemm_products(sizes: &Sizes<'_>) -> f64 {
    let depth = usize::from(sizes.node.int("transA").unwrap_or(0) == 0);
    sizes.output() * sizes.axis(0, depth)
}

/// As NumPy's: leading axes broadcast, a vector is a matrix with one row or column that is dropped again.
fn matmul(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let (left, right) = (context.dims(0)?, context.dims(1)?);
    let (left_lead, rows, depth) = match left {
        [depth] => (&[][..], None, *depth),
        [lead @ .., rows, depth] => (lead, Some(*rows), *depth),
        [] => return mismatch("a scalar is no matrix"),
    };
    let (right_lead, other, columns) = match right {
        [other] => (&[][..], *other, None),
        [lead @ .., other, columns] => (lead, *other, Some(*columns)),
        [] => return mismatch("a scalar is no matrix"),
    };
    if depth != other {
        return mismatch(format!("{left:?} times {right:?}"));
    }
    let mut dims = broadcast_dims(left_lead, right_lead)?;
    dims.extend(rows.into_iter().chain(columns));
    context.output(dims)
}

/// Samples may lie along rows of the left, columns of the right, or leading axes; never along the axis summed over.
fn matmul_rows(view: &RowView<'_>) -> Option<Samples> {
    let (left_rank, right_rank) = (view.rank(0)?, view.rank(1)?);
    if left_rank < 2 || right_rank < 2 {
        return None;
    }
    let rank = left_rank.max(right_rank);
    let aligned = |slot, own: usize| {
        let samples = view.samples(slot)?;
        Some(samples.on(samples.axis + rank - own))
    };
    match (aligned(0, left_rank), aligned(1, right_rank)) {
        (Some(samples), None) if view.is_parameter(1) && samples.axis != rank - 1 => Some(samples),
        (None, Some(samples)) if view.is_parameter(0) && samples.axis != rank - 2 => Some(samples),
        (Some(left), Some(right)) if left == right && left.axis < rank - 2 => Some(left),
        _ => None,
    }
}
