//! Operators that reshape a tensor or permute the axes without changing elements.

use super::normalization::on_first_axis;
use super::operator::Effort::Passing;
use super::operator::HeadPart::Tail;
use super::operator::{Operator, ShapeRule};
use crate::values::{
    Context, Growth, InferredValue, Literal, RowView, RuleResult, SLIDES, SampleAxis, Why, at, axes_of,
    axis_of, mismatch, product, replaced, strides, unsigned,
};

pub(super) const OPERATORS: &[Operator] = &[
    blocks("DepthToSpace", 1, depth_to_space),
    regrouping("Flatten", 1, flatten).head(Tail),
    regrouping("Reshape", 1, reshape).head(Tail),
    blocks("SpaceToDepth", 1, space_to_depth),
    regrouping("Squeeze", 1, squeeze)
        .growth(squeeze_growth)
        .head(Tail),
    Operator::new("Transpose", 1, transpose)
        .literal(transposed)
        .rows(transpose_rows)
        .straight(|growth| growth.only_first_depends_on_batch())
        .shrinks(true)
        .rearranges(true)
        .effort(Passing),
    regrouping("Unsqueeze", 1, unsqueeze).growth(|growth| growth.fixed(&[1])),
];

/// Creates an operator that keeps the row-major order of elements.
const fn regrouping(name: &'static str, since: i64, shape: ShapeRule) -> Operator {
    Operator::new(name, since, shape)
        .literal(|context, _| context.literal(0).cloned())
        .rows(regrouped)
        .straight(|growth| growth.only_first_depends_on_batch())
        .shrinks(true)
        .rearranges(true)
        .effort(Passing)
}

/// Creates an operator that exchanges channels and positions.
const fn blocks(name: &'static str, since: i64, shape: ShapeRule) -> Operator {
    Operator::new(name, since, shape)
        .rows(on_first_axis)
        .growth(|growth| growth.batch_first())
}

fn regrouped(view: &RowView<'_>) -> Option<SampleAxis> {
    let outside = view.samples(0)?.steps_outside(&view.dims(0)?)?;
    SampleAxis::placed(&view.output_dims()?, outside)
}

fn flatten(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let axis = match context.node.int("axis").unwrap_or(1) {
        axis if usize::try_from(axis) == Ok(dims.len()) => dims.len(),
        axis => axis_of(axis, dims.len())?,
    };
    let (rows, columns) = dims.split_at_checked(axis).unwrap_or((dims, &[]));
    context.output(vec![product(rows)?, product(columns)?])
}

fn reshape(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let target = context.setting("shape", 1)?;
    let copy_zero = context.node.int("allowzero").unwrap_or(0) == 0;
    let mut result = Vec::with_capacity(target.len());
    for (axis, &size) in target.iter().enumerate() {
        result.push(match size {
            -1 => 1,
            0 if copy_zero => at(dims, axis)?,
            size => unsigned(size)?,
        });
    }
    let elements = product(dims)?;
    let rest = product(&result)?;
    let mut open = target
        .iter()
        .enumerate()
        .filter(|&(_, &size)| size == -1)
        .map(|(axis, _)| axis);
    match (open.next(), open.next()) {
        (None, _) if elements == rest => context.output(result),
        (Some(axis), None) if rest > 0 && elements.is_multiple_of(rest) => {
            context.output(replaced(&result, axis, elements / rest))
        }
        _ => mismatch(format!("{dims:?} cannot become {target:?}")),
    }
}

fn squeeze(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let axes: Vec<usize> = match context.attribute_or_input("axes", 1)? {
        // ONNX Runtime ignores an empty list and squeezes all axes of size 1, including a batch of 1.
        Some([]) => return mismatch("the list of axes is empty".to_owned()),
        Some(axes) => axes_of(axes, dims.len())?,
        None => (0..dims.len())
            .filter(|&axis| dims.get(axis) == Some(&1))
            .collect(),
    };
    if axes.iter().any(|&axis| dims.get(axis) != Some(&1)) {
        return mismatch(format!("axes {axes:?} of {dims:?} are not all 1"));
    }
    let kept = dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    context.output(kept.map(|(_, &dim)| dim).collect())
}

fn squeeze_growth(growth: &Growth<'_>) -> Result<(), Why> {
    growth.fixed(&[1])?;
    let named = growth.node.ints("axes").is_some() || growth.node.input_name(1).is_some();
    let open = !growth.open_axes().is_empty();
    if open && !named { Err(SLIDES) } else { Ok(()) }
}

fn unsqueeze(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let axes = context.setting("axes", 1)?;
    let rank = dims.len() + axes.len();
    let axes: Vec<usize> = axes_of(axes, rank)?;
    let mut rest = dims.iter();
    let result: Option<Vec<usize>> = (0..rank)
        .map(|axis| {
            if axes.contains(&axis) {
                Some(1)
            } else {
                rest.next().copied()
            }
        })
        .collect();
    context.output(result.map_or_else(|| mismatch(format!("axes {axes:?} repeat")), Ok)?)
}

/// Returns the input axis of each output axis.
fn permutation(context: &Context<'_>, rank: usize) -> RuleResult<Vec<usize>> {
    let Some(order) = context.node.ints("perm") else {
        return Ok((0..rank).rev().collect());
    };
    let order: Vec<usize> = axes_of(order, rank)?;
    if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
        return mismatch(format!("{order:?} is not a permutation of {rank} axes"));
    }
    Ok(order)
}

fn transpose(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let order = permutation(context, dims.len())?;
    context.output(
        order
            .iter()
            .map(|&axis| at(dims, axis))
            .collect::<RuleResult<_>>()?,
    )
}

fn transposed(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    let steps = strides(context.dims(0).ok()?)?;
    let order = permutation(context, steps.len()).ok()?;
    let steps: Option<Vec<i64>> = order.iter().map(|&axis| steps.get(axis).copied()).collect();
    context.literal(0)?.walk(0, dims, &steps?)
}

fn transpose_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let order = permutation(&view.context(), view.rank(0)?).ok()?;
    let axis = order.iter().position(|&axis| axis == samples.axis);
    axis.map(|axis| samples.on(axis))
}

/// Returns `[n, c, h, w]` and the side length of the blocks of positions that are converted to channels or
/// back.
fn blocked(context: &Context<'_>) -> RuleResult<([usize; 4], usize)> {
    let block = context.node.int("blocksize").unwrap_or_default();
    match (context.dims(0)?.try_into(), usize::try_from(block)) {
        (Ok(dims), Ok(block)) if block > 0 => Ok((dims, block)),
        _ => mismatch(format!(
            "{:?} cannot be divided into blocks of {block}",
            context.dims(0)?
        )),
    }
}

fn depth_to_space(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let ([n, c, h, w], block) = blocked(context)?;
    if !c.is_multiple_of(block.saturating_mul(block)) {
        return mismatch(format!("{c} channels cannot be divided into blocks of {block}"));
    }
    let h = h.saturating_mul(block);
    let w = w.saturating_mul(block);
    context.output(vec![n, c / block / block, h, w])
}

fn space_to_depth(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let ([n, c, h, w], block) = blocked(context)?;
    if !h.is_multiple_of(block) || !w.is_multiple_of(block) {
        return mismatch(format!(
            "{h}x{w} positions cannot be divided into blocks of {block}"
        ));
    }
    let c = c.saturating_mul(block).saturating_mul(block);
    context.output(vec![n, c, h / block, w / block])
}
