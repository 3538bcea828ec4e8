//! Operators that slice, concatenate, pad and look up elements.

use super::operator::Operator;
use super::repetition::axis_kept;
use crate::values::{
    Context, Growth, InferredValue, Literal, RowUse, RowView, RuleResult, SLIDES, SampleAxis, Unresolved,
    Why, at, axes_of, axis_of, from_end, mismatch, replaced, signed, sizes_of, strides, unsigned,
};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Concat", 1, concat)
        .literal(joined)
        .rows(concat_rows)
        .straight(|_| true)
        .weights(0..usize::MAX),
    Operator::new("Gather", 1, gather)
        .literal(gathered)
        .rows(gather_rows)
        .straight(|growth| growth.only_first_depends_on_batch())
        .weights(0..1),
    Operator::new("GatherElements", 11, |context| {
        context.output(context.dims(1)?.to_vec())
    })
    .rows(gather_elements_rows),
    Operator::new("GatherND", 11, gather_nd).rows(gather_nd_rows),
    Operator::new("Pad", 1, pad)
        .rows(pad_rows)
        .growth(|growth| growth.fixed(&[3])),
    in_place("ScatterElements", 11).versions(None).flat(true),
    in_place("ScatterND", 11).growth(|growth| growth.fixed(&[1])),
    Operator::new("Slice", 1, slice)
        .literal(sliced)
        .rows(slice_rows)
        .growth(slice_growth)
        .straight(|growth| growth.only_first_depends_on_batch())
        .shrinks(true),
    Operator::new("Split", 1, split)
        .rows(split_rows)
        .like_outputs(true)
        .growth(split_growth)
        .shrinks(true),
    in_place("Trilu", 14),
];

/// Creates an operator with a result of the same shape as the first input.
const fn in_place(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, |context| context.same_output()).shrinks(true)
}

fn concat(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let all = context.all_dims()?;
    let first = *all.first().ok_or(Unresolved::Unknown)?;
    let axis = axis_of(context.node.int("axis").unwrap_or(1), first.len())?;
    let mut size = 0_usize;
    for dims in &all {
        if dims.len() != first.len() || replaced(dims, axis, 0) != replaced(first, axis, 0) {
            return mismatch(format!("{first:?} and {dims:?} do not join along axis {axis}"));
        }
        size = size.saturating_add(at(dims, axis)?);
    }
    context.output(replaced(first, axis, size))
}

/// Concatenates vectors only, because shapes are never concatenated in another way.
fn joined(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    if dims.len() != 1 {
        return None;
    }
    let slots = 0..context.node.input.len();
    let parts: Vec<&Literal> = slots.map(|slot| context.literal(slot)).collect::<Option<_>>()?;
    let integers: Option<Vec<&[i64]>> = parts.iter().map(|part| part.integers()).collect();
    if let Some(integers) = integers {
        return Some(Literal::Integers(integers.concat()));
    }
    if parts.iter().any(|part| part.integers().is_some()) {
        return None;
    }
    Some(Literal::Numbers(
        parts.into_iter().flat_map(Literal::numbers).collect(),
    ))
}

fn concat_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let alike = (0..view.node.input.len()).all(|slot| view.samples(slot) == Some(samples));
    (alike && view.axis(1)? != samples.axis).then_some(samples)
}

/// Axis of a `Slice` and the selected positions.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SlicedAxis {
    axis: usize,
    start: i64,
    step: i64,
    count: usize,
}

/// Returns the axes that a `Slice` changes, with starts and ends clamped as specified by ONNX.
fn sliced_axes(context: &Context<'_>) -> RuleResult<Vec<SlicedAxis>> {
    let dims = context.dims(0)?;
    let starts = context.setting("starts", 1)?;
    let ends = context.setting("ends", 2)?;
    let axes = context.attribute_or_input("axes", 3)?;
    let steps = context.integers(4)?;
    if starts.len() != ends.len() || axes.is_some_and(|axes| axes.len() != starts.len()) {
        return mismatch("starts, ends and axes differ in length");
    }
    let mut slices = Vec::with_capacity(starts.len());
    for (index, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        let numbered = signed(index);
        let axis = axis_of(
            axes.and_then(|axes| axes.get(index)).copied().unwrap_or(numbered),
            dims.len(),
        )?;
        let step = steps.and_then(|steps| steps.get(index)).copied().unwrap_or(1);
        slices.push(sliced_axis(axis, at(dims, axis)?, start, end, step)?);
    }
    Ok(slices)
}

fn sliced_axis(axis: usize, size: usize, start: i64, end: i64, step: i64) -> RuleResult<SlicedAxis> {
    let size = signed(size);
    let (start, span) = match step {
        0 => return mismatch("a step of 0"),
        1.. => {
            let start = from_end(start, size).clamp(0, size);
            (start, from_end(end, size).clamp(0, size) - start)
        }
        _ => {
            let start = from_end(start, size).clamp(0, (size - 1).max(0));
            (start, start - from_end(end, size).clamp(-1, size - 1))
        }
    };
    let step_length = step.unsigned_abs();
    let count = u64::try_from(span).unwrap_or(0).div_ceil(step_length);
    Ok(SlicedAxis {
        axis,
        start,
        step,
        count: usize::try_from(count).unwrap_or(usize::MAX),
    })
}

fn slice(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let slices = sliced_axes(context)?;
    let dims = slices.iter().fold(context.dims(0)?.to_vec(), |dims, slice| {
        replaced(&dims, slice.axis, slice.count)
    });
    context.output(dims)
}

fn sliced(context: &Context<'_>, dims: &[usize]) -> Option<Literal> {
    let slices = sliced_axes(context).ok()?;
    let mut steps = strides(context.dims(0).ok()?)?;
    let mut start = 0;
    for (place, slice) in slices.iter().enumerate() {
        let step = steps.get_mut(slice.axis)?;
        // Slicing an axis twice is not supported.
        if slices.iter().take(place).any(|other| other.axis == slice.axis) {
            return None;
        }
        start += slice.start.checked_mul(*step)?;
        *step = step.checked_mul(slice.step)?;
    }
    context.literal(0)?.walk(start, dims, &steps)
}

/// A slice may include the batch axis if it selects all of it.
fn slice_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let slices = sliced_axes(&view.context()).ok()?;
    slices
        .iter()
        .all(|slice| slice.axis != samples.axis || (slice.start == 0 && slice.step == 1))
        .then(|| axis_kept(view))?
}

/// Requires the slice to select all positions of axes that depend on the batch.
fn slice_growth(growth: &Growth<'_>) -> Result<(), Why> {
    growth.fixed(&[1, 2, 3, 4])?;
    let open = growth.open_axes();
    if keeps_whole(&growth.small, &open) && keeps_whole(&growth.large, &open) {
        Ok(())
    } else {
        Err(SLIDES)
    }
}

/// Returns true if a `Slice` selects all positions of the axes `open`.
fn keeps_whole(context: &Context<'_>, open: &[usize]) -> bool {
    let (Ok(slices), Ok(dims)) = (sliced_axes(context), context.dims(0)) else {
        return open.is_empty();
    };
    slices.iter().all(|slice| {
        !open.contains(&slice.axis)
            || (slice.start == 0 && slice.step == 1 && dims.get(slice.axis) == Some(&slice.count))
    })
}

fn gather(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let indices = context.dims(1)?;
    let axis = context.axis(0)?;
    let (before, after) = dims.split_at_checked(axis).unwrap_or((dims, &[]));
    let kept = after.iter().skip(1);
    context.output(before.iter().chain(indices).chain(kept).copied().collect())
}

fn gathered(context: &Context<'_>, _: &[usize]) -> Option<Literal> {
    let (&[size], Some(indices)) = (context.dims(0).ok()?, context.literal(1)?.integers()) else {
        return None;
    };
    let positions = indices.iter().map(|&index| axis_of(index, size).ok());
    context
        .literal(0)?
        .pick(&positions.collect::<Option<Vec<usize>>>()?)
}

fn gather_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let axis = view.axis(0)?;
    let index_rank = view.rank(1)?;
    match (view.input(0)?, view.input(1)?) {
        (RowUse::PerSample(samples), RowUse::Independent) if samples.axis < axis => Some(samples),
        (RowUse::PerSample(samples), RowUse::Independent) if samples.axis > axis => {
            Some(samples.on(samples.axis + index_rank - 1))
        }
        (RowUse::Independent, RowUse::PerSample(samples)) => Some(samples.on(samples.axis + axis)),
        _ => None,
    }
}

/// Requires a lookup along an axis without samples.
fn gather_elements_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let apart = view.samples(1)? == samples && view.axis(0)? != samples.axis;
    (apart && view.dims(0)?.get(samples.axis) == view.dims(1)?.get(samples.axis)).then_some(samples)
}

/// Data and indices with a common batch are looked up separately for every sample.
fn gather_nd_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let plain = SampleAxis::plain(0);
    let shared = view.node.int("batch_dims").unwrap_or(0);
    (shared > 0 && view.samples(0)? == plain && view.samples(1)? == plain).then_some(plain)
}

/// Data and indices share the first `batch_dims` axes. The size of the last axis of the indices is the number
/// of axes that an index selects from.
fn gather_nd(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let indices = context.dims(1)?;
    let Some((&depth, places)) = indices.split_last() else {
        return mismatch("indices without an axis");
    };
    let shared = usize::try_from(context.node.int("batch_dims").unwrap_or(0));
    let shared = shared.or_else(|_| mismatch("negative batch_dims"))?;
    match dims.get(shared.saturating_add(depth)..) {
        Some(rest) if shared <= places.len() && dims.get(..shared) == places.get(..shared) => {
            context.output([places, rest].concat())
        }
        _ => mismatch(format!("indices {indices:?} of {dims:?}")),
    }
}

fn split(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let axis = context.axis(0)?;
    let size = at(dims, axis)?;
    let sizes = match context.attribute_or_input("split", 1)? {
        Some(sizes) => sizes_of(sizes)?,
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
        .map(|size| InferredValue::with_shape(context.data_type(0), replaced(dims, axis, size)))
        .collect())
}

fn split_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    (view.axis(0)? != samples.axis).then_some(samples)
}

fn split_growth(growth: &Growth<'_>) -> Result<(), Why> {
    growth.fixed(&[1])?;
    let axis = growth.small.axis(0);
    let batch = axis.is_ok_and(|axis| growth.open_axes().contains(&axis));
    if batch { Err(SLIDES) } else { Ok(()) }
}

/// Returns the padding before and after each axis.
fn pads(context: &Context<'_>, rank: usize) -> RuleResult<Vec<(i64, i64)>> {
    let pads = context.setting("pads", 1)?;
    let axes: Vec<usize> = match context.integers(3)? {
        Some(axes) => axes_of(axes, rank)?,
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

fn pad(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    let padded = dims
        .iter()
        .zip(pads(context, dims.len())?)
        .map(|(&dim, (before, after))| unsigned(signed(dim).saturating_add(before).saturating_add(after)));
    context.output(padded.collect::<RuleResult<_>>()?)
}

fn pad_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let pads = pads(&view.context(), view.rank(0)?).ok()?;
    (pads.get(samples.axis) == Some(&(0, 0)) && view.is_parameter(2)).then_some(samples)
}
