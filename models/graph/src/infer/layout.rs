//! Operators that move, join, cut or repeat elements without computing on them.

use super::elementwise::broadcast_dims;
use super::{Context, Ruled, Stop, Value, axis_of, mismatch, product};

fn unsigned(value: i64) -> Ruled<usize> {
    usize::try_from(value).or_else(|_| mismatch(format!("a size of {value}")))
}

fn one(context: &Context<'_>, dims: Vec<usize>) -> Ruled<Vec<Value>> {
    Ok(vec![Value::of(context.data_type(0), dims)])
}

fn at(dims: &[usize], axis: usize) -> Ruled<usize> {
    dims.get(axis)
        .copied()
        .map_or_else(|| mismatch(format!("{dims:?} has no axis {axis}")), Ok)
}

/// `dims` with `axis` set to `size`.
fn replaced(dims: &[usize], axis: usize, size: usize) -> Vec<usize> {
    dims.iter()
        .enumerate()
        .map(|(index, &dim)| if index == axis { size } else { dim })
        .collect()
}

pub(crate) fn flatten(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let axis = match context.node.int("axis").unwrap_or(1) {
        axis if usize::try_from(axis) == Ok(dims.len()) => dims.len(),
        axis => axis_of(axis, dims.len())?,
    };
    let (rows, columns) = dims.split_at_checked(axis).unwrap_or((dims, &[]));
    one(context, vec![product(rows)?, product(columns)?])
}

pub(crate) fn reshape(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let target = context.attribute_or_input("shape", 1)?.ok_or(Stop::Unknown)?;
    let copy_zero = context.node.int("allowzero").unwrap_or(0) == 0;
    let mut result = Vec::with_capacity(target.len());
    for (axis, &size) in target.iter().enumerate() {
        result.push(match size {
            -1 => 1,
            0 if copy_zero => at(dims, axis)?,
            size => unsigned(size)?,
        });
    }
    let (elements, rest) = (product(dims)?, product(&result)?);
    let mut open = target
        .iter()
        .enumerate()
        .filter(|&(_, &size)| size == -1)
        .map(|(axis, _)| axis);
    match (open.next(), open.next()) {
        (None, _) if elements == rest => one(context, result),
        (Some(axis), None) if rest > 0 && elements.is_multiple_of(rest) => {
            one(context, replaced(&result, axis, elements / rest))
        }
        _ => mismatch(format!("{dims:?} cannot become {target:?}")),
    }
}

/// Where each output axis comes from.
pub(crate) fn permutation(context: &Context<'_>, rank: usize) -> Ruled<Vec<usize>> {
    let Some(order) = context.node.ints("perm") else {
        return Ok((0..rank).rev().collect());
    };
    let order: Vec<usize> = order
        .iter()
        .map(|&axis| axis_of(axis, rank))
        .collect::<Ruled<_>>()?;
    if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
        return mismatch(format!("{order:?} is no order of {rank} axes"));
    }
    Ok(order)
}

pub(crate) fn transpose(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let order = permutation(context, dims.len())?;
    one(
        context,
        order.iter().map(|&axis| at(dims, axis)).collect::<Ruled<_>>()?,
    )
}

pub(crate) fn concat(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let all = context.all_dims()?;
    let first = *all.first().ok_or(Stop::Unknown)?;
    let axis = axis_of(context.node.int("axis").unwrap_or(1), first.len())?;
    let mut size = 0_usize;
    for dims in &all {
        if dims.len() != first.len() || replaced(dims, axis, 0) != replaced(first, axis, 0) {
            return mismatch(format!("{first:?} and {dims:?} do not join along axis {axis}"));
        }
        size = size.saturating_add(at(dims, axis)?);
    }
    one(context, replaced(first, axis, size))
}

/// One axis of a `Slice`: which positions it keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cut {
    pub(crate) axis: usize,
    pub(crate) start: i64,
    pub(crate) step: i64,
    pub(crate) count: usize,
}

/// The axes a `Slice` touches, with starts and ends clamped as ONNX says.
pub(crate) fn slice_cuts(context: &Context<'_>) -> Ruled<Vec<Cut>> {
    let dims = context.dims(0)?;
    let starts = context.attribute_or_input("starts", 1)?.ok_or(Stop::Unknown)?;
    let ends = context.attribute_or_input("ends", 2)?.ok_or(Stop::Unknown)?;
    let axes = context.attribute_or_input("axes", 3)?;
    let steps = context.integers(4)?;
    if starts.len() != ends.len() || axes.is_some_and(|axes| axes.len() != starts.len()) {
        return mismatch("starts, ends and axes differ in length");
    }
    let mut cuts = Vec::with_capacity(starts.len());
    for (index, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        let numbered = i64::try_from(index).unwrap_or(i64::MAX);
        let axis = axis_of(
            axes.and_then(|axes| axes.get(index)).copied().unwrap_or(numbered),
            dims.len(),
        )?;
        let step = steps.and_then(|steps| steps.get(index)).copied().unwrap_or(1);
        cuts.push(cut(axis, at(dims, axis)?, start, end, step)?);
    }
    Ok(cuts)
}

fn cut(axis: usize, size: usize, start: i64, end: i64, step: i64) -> Ruled<Cut> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let place = |value: i64| {
        if value < 0 {
            value.saturating_add(size)
        } else {
            value
        }
    };
    let (start, span) = match step {
        0 => return mismatch("a step of 0"),
        1.. => {
            let start = place(start).clamp(0, size);
            (start, place(end).clamp(0, size) - start)
        }
        _ => {
            let start = place(start).clamp(0, (size - 1).max(0));
            (start, start - place(end).clamp(-1, size - 1))
        }
    };
    let step_length = step.unsigned_abs();
    let count = u64::try_from(span).unwrap_or(0).div_ceil(step_length);
    Ok(Cut {
        axis,
        start,
        step,
        count: usize::try_from(count).unwrap_or(usize::MAX),
    })
}

pub(crate) fn slice(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let cuts = slice_cuts(context)?;
    let dims = cuts.iter().fold(context.dims(0)?.to_vec(), |dims, cut| {
        replaced(&dims, cut.axis, cut.count)
    });
    one(context, dims)
}

pub(crate) fn gather(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let (dims, indices) = (context.dims(0)?, context.dims(1)?);
    let axis = axis_of(context.node.int("axis").unwrap_or(0), dims.len())?;
    let (before, after) = dims.split_at_checked(axis).unwrap_or((dims, &[]));
    let kept = after.iter().skip(1);
    one(
        context,
        before.iter().chain(indices).chain(kept).copied().collect(),
    )
}

pub(crate) fn gather_elements(context: &Context<'_>) -> Ruled<Vec<Value>> {
    one(context, context.dims(1)?.to_vec())
}

pub(crate) fn split(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let axis = axis_of(context.node.int("axis").unwrap_or(0), dims.len())?;
    let size = at(dims, axis)?;
    let sizes = match context.attribute_or_input("split", 1)? {
        Some(sizes) => sizes
            .iter()
            .map(|&size| unsigned(size))
            .collect::<Ruled<Vec<usize>>>()?,
        None => {
            let parts = context.node.output.len().max(1);
            let part = size.div_ceil(parts);
            (0..parts)
                .map(|index| size.saturating_sub(part.saturating_mul(index)).min(part))
                .collect()
        }
    };
    if sizes.iter().try_fold(0_usize, |all, &size| all.checked_add(size)) != Some(size) {
        return mismatch(format!("an axis of {size} does not split into {sizes:?}"));
    }
    Ok(sizes
        .into_iter()
        .map(|size| Value::of(context.data_type(0), replaced(dims, axis, size)))
        .collect())
}

pub(crate) fn squeeze(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let axes: Vec<usize> = match context.attribute_or_input("axes", 1)? {
        Some(axes) => axes
            .iter()
            .map(|&axis| axis_of(axis, dims.len()))
            .collect::<Ruled<_>>()?,
        None => (0..dims.len())
            .filter(|&axis| dims.get(axis) == Some(&1))
            .collect(),
    };
    if axes.iter().any(|&axis| dims.get(axis) != Some(&1)) {
        return mismatch(format!("axes {axes:?} of {dims:?} are not all 1"));
    }
    let kept = dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    one(context, kept.map(|(_, &dim)| dim).collect())
}

pub(crate) fn unsqueeze(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let axes = context.attribute_or_input("axes", 1)?.ok_or(Stop::Unknown)?;
    let rank = dims.len() + axes.len();
    let axes: Vec<usize> = axes
        .iter()
        .map(|&axis| axis_of(axis, rank))
        .collect::<Ruled<_>>()?;
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
    one(
        context,
        result.map_or_else(|| mismatch(format!("axes {axes:?} repeat")), Ok)?,
    )
}

pub(crate) fn expand(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let target = context.integers(1)?.ok_or(Stop::Unknown)?;
    let target: Vec<usize> = target.iter().map(|&size| unsigned(size)).collect::<Ruled<_>>()?;
    one(context, broadcast_dims(context.dims(0)?, &target)?)
}

pub(crate) fn tile(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let repeats = context.integers(1)?.ok_or(Stop::Unknown)?;
    let pairs = context.dims(0)?.iter().zip(repeats);
    one(
        context,
        pairs
            .map(|(&dim, &times)| Ok(dim.saturating_mul(unsigned(times)?)))
            .collect::<Ruled<_>>()?,
    )
}

/// Padding before and after each axis.
pub(crate) fn pads(context: &Context<'_>, rank: usize) -> Ruled<Vec<(i64, i64)>> {
    let pads = context.attribute_or_input("pads", 1)?.ok_or(Stop::Unknown)?;
    let axes: Vec<usize> = match context.integers(3)? {
        Some(axes) => axes
            .iter()
            .map(|&axis| axis_of(axis, rank))
            .collect::<Ruled<_>>()?,
        None => (0..rank).collect(),
    };
    let (before, after) = match pads.split_at_checked(axes.len()) {
        Some((before, after)) if after.len() == axes.len() => (before, after),
        _ => return mismatch(format!("pads {pads:?} for {} axes", axes.len())),
    };
    let mut all = vec![(0, 0); rank];
    for ((axis, &before), &after) in axes.into_iter().zip(before).zip(after) {
        if let Some(slot) = all.get_mut(axis) {
            *slot = (before, after);
        }
    }
    Ok(all)
}

pub(crate) fn pad(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let padded = dims
        .iter()
        .zip(pads(context, dims.len())?)
        .map(|(&dim, (before, after))| {
            unsigned(
                i64::try_from(dim)
                    .unwrap_or(i64::MAX)
                    .saturating_add(before)
                    .saturating_add(after),
            )
        });
    one(context, padded.collect::<Ruled<_>>()?)
}

/// The scales of a `Resize` or `Upsample`, where they are known.
pub(crate) fn scales(context: &Context<'_>) -> Option<Vec<f64>> {
    if let Some(scales) = context.node.attribute("scales") {
        return Some(scales.floats.iter().map(|&scale| scale.into()).collect());
    }
    let first = context.node.op_type == "Upsample" || context.opset < 11;
    let scales = context.input(if first { 1 } else { 2 })?.literal.as_ref()?;
    Some(scales.numbers())
}

/// `Resize` and `Upsample` to sizes, or by scales, given as constants.
pub(crate) fn resize(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    if context.node.attribute("axes").is_some()
        || context
            .node
            .text("keep_aspect_ratio_policy")
            .is_some_and(|p| p != "stretch")
    {
        return Err(Stop::Unknown);
    }
    if let Some(sizes) = context.integers(3)?.filter(|sizes| !sizes.is_empty()) {
        return one(
            context,
            sizes.iter().map(|&size| unsigned(size)).collect::<Ruled<_>>()?,
        );
    }
    let scales = scales(context).ok_or(Stop::Unknown)?;
    if scales.len() != dims.len() {
        return mismatch(format!("{} scales for {dims:?}", scales.len()));
    }
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let scaled = dims
        .iter()
        .zip(scales)
        .map(|(&dim, scale)| (dim as f64 * scale).floor().max(0.0) as usize);
    one(context, scaled.collect())
}

fn block(context: &Context<'_>) -> Ruled<usize> {
    match context
        .node
        .int("blocksize")
        .and_then(|size| usize::try_from(size).ok())
    {
        Some(size) if size > 0 => Ok(size),
        _ => mismatch("blocksize must be positive"),
    }
}

pub(crate) fn depth_to_space(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let block = block(context)?;
    match *context.dims(0)? {
        [n, c, h, w] if c.is_multiple_of(block.saturating_mul(block)) => one(
            context,
            vec![
                n,
                c / block / block,
                h.saturating_mul(block),
                w.saturating_mul(block),
            ],
        ),
        ref dims => mismatch(format!("{dims:?} in blocks of {block}")),
    }
}

pub(crate) fn space_to_depth(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let block = block(context)?;
    match *context.dims(0)? {
        [n, c, h, w] if h.is_multiple_of(block) && w.is_multiple_of(block) => one(
            context,
            vec![
                n,
                c.saturating_mul(block).saturating_mul(block),
                h / block,
                w / block,
            ],
        ),
        ref dims => mismatch(format!("{dims:?} in blocks of {block}")),
    }
}
