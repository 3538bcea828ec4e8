//! Operators that reduce, scan or select along axes.

use super::operator::HeadPart::Tail;
use super::operator::Operator;
use crate::onnx::data_type;
use crate::values::{
    Context, Growth, InferredValue, Literal, RowView, RuleResult, SampleAxis, Unresolved, axes_of, axis_of,
    replaced,
};

pub(super) const OPERATORS: &[Operator] = &[
    extreme("ArgMax", 1),
    extreme("ArgMin", 1),
    Operator::new("CumSum", 11, |context| context.same_output())
        .rows(summed_rows)
        .shrinks(true),
    reduction("ReduceL1", 1),
    reduction("ReduceL2", 1),
    reduction("ReduceLogSum", 1),
    reduction("ReduceLogSumExp", 1),
    reduction("ReduceMax", 1).literal(|context, dims| to_one(context, dims, |values| values.max())),
    reduction("ReduceMean", 1).head(Tail),
    reduction("ReduceMin", 1).literal(|context, dims| to_one(context, dims, |values| values.min())),
    reduction("ReduceProd", 1)
        .literal(|context, dims| to_one(context, dims, |mut values| values.try_fold(1, i64::checked_mul)))
        .straight(one_moves),
    reduction("ReduceSum", 1)
        .literal(|context, dims| to_one(context, dims, |mut values| values.try_fold(0, i64::checked_add)))
        .straight(|_| true),
    reduction("ReduceSumSquare", 1),
    Operator::new("TopK", 1, top_k)
        .rows(along_axis)
        .like_outputs(true)
        .shrinks(true),
];

const fn reduction(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, reduced)
        .rows(reduced_rows)
        .growth(|growth| growth.fixed(&[1]))
        .shrinks(true)
}

const fn extreme(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, arg_extreme)
        .rows(extreme_rows)
        .shrinks(true)
        .flat(true)
}

fn keeps_dims(context: &Context<'_>) -> bool {
    context.node.int("keepdims").unwrap_or(1) == 1
}

/// Returns the axes of a reduction. If the list is missing or empty, all axes are reduced.
fn reduced_axes(context: &Context<'_>, rank: usize) -> RuleResult<Vec<usize>> {
    let axes = context.attribute_or_input("axes", 1)?;
    match axes {
        None | Some([]) if context.node.int("noop_with_empty_axes") == Some(1) => Ok(Vec::new()),
        None | Some([]) => Ok((0..rank).collect()),
        Some(axes) => axes_of(axes, rank),
    }
}

fn without(dims: &[usize], axes: &[usize], keep: bool) -> Vec<usize> {
    let kept = dims
        .iter()
        .enumerate()
        .filter_map(|(axis, &dim)| match axes.contains(&axis) {
            true => keep.then_some(1),
            false => Some(dim),
        });
    kept.collect()
}

fn reduced(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let axes = reduced_axes(context, dims.len())?;
    context.output(without(dims, &axes, keeps_dims(context)))
}

fn reduced_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let context = view.context();
    let mut axes = reduced_axes(&context, view.rank(0)?).ok()?;
    axes.sort_unstable();
    axes.dedup();
    if axes.contains(&samples.axis) {
        return None;
    }
    let before = axes.iter().filter(|&&axis| axis < samples.axis).count();
    let dropped = if keeps_dims(&context) { 0 } else { before };
    Some(samples.on(samples.axis - dropped))
}

/// Reduces all integers of a shape to a single integer.
fn to_one(
    context: &Context<'_>,
    dims: &[usize],
    reduce: fn(std::iter::Copied<std::slice::Iter<'_, i64>>) -> Option<i64>,
) -> Option<Literal> {
    if dims.iter().any(|&dim| dim != 1) {
        return None;
    }
    let values = context.literal(0)?.integers()?.iter().copied();
    Some(Literal::Integers(vec![reduce(values)?]))
}

/// Returns true if no more than one factor depends on the batch.
fn one_moves(growth: &Growth<'_>) -> bool {
    let lines = growth.lines(0);
    lines.is_some_and(|lines| lines.iter().filter(|line| line.slope != 0).count() <= 1)
}

fn arg_extreme(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let axis = context.axis(0)?;
    let dims = without(dims, &[axis], keeps_dims(context));
    Ok(vec![InferredValue::with_shape(data_type::INT64, dims)])
}

fn extreme_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.only_samples()?;
    let axis = view.axis(0)?;
    let dropped = !keeps_dims(&view.context()) && axis < samples.axis;
    (axis != samples.axis).then(|| samples.on(samples.axis - usize::from(dropped)))
}

/// The axis of a `CumSum` must be known and must not be the sample axis.
fn summed_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.only_samples()?;
    let axis = view.context().integer(1).ok()??;
    let axis = axis_of(axis, view.rank(0)?).ok()?;
    (axis != samples.axis).then_some(samples)
}

fn top_k(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let axis = context.axis(-1)?;
    let count = context
        .integer(1)?
        .or(context.node.int("k"))
        .and_then(|count| usize::try_from(count).ok())
        .ok_or(Unresolved::Unknown)?;
    let dims = replaced(context.dims(0)?, axis, count);
    Ok(vec![
        InferredValue::with_shape(context.data_type(0), dims.clone()),
        InferredValue::with_shape(data_type::INT64, dims),
    ])
}

/// Row rule for operators that work along one axis, which must not be the sample axis.
pub(super) fn along_axis(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.only_samples()?;
    (view.axis(-1)? != samples.axis).then_some(samples)
}
