//! Operators that repeat or resample elements, independently for every axis.

use super::operator::Operator;
use crate::values::{
    Context, Dim, Growth, InferredValue, RowUse, RowView, RuleResult, SampleAxis, Unresolved, Why, as_number,
    broadcast_dims, mismatch, signed, sizes_of, unsigned,
};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Expand", 8, expand)
        .literal(|context, dims| context.stretched(0, dims))
        .rows(expand_rows)
        .straight(|growth| growth.only_first_depends_on_batch())
        .weights(0..1),
    scaling("Resize", 10),
    Operator::new("Tile", 1, tile)
        .rows(tiled_rows)
        .growth(tile_growth),
    scaling("Upsample", 1).versions(Some((1, 9))),
];

const fn scaling(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, resize)
        .rows(axis_kept)
        .growth(resize_growth)
}

/// Row rule for operators that process axes independently and keep the size of the sample axis.
pub(super) fn axis_kept(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let before = view.dims(0)?;
    let after = view.output_dims()?;
    let kept = before.len() == after.len() && before.get(samples.axis) == after.get(samples.axis);
    kept.then_some(samples)
}

/// Row rule for repeating a value without samples along the batch.
pub(super) fn filled(view: &RowView<'_>) -> Option<SampleAxis> {
    let dims = view.output_dims()?;
    let batch = dims.iter().position(|dim| *dim == Dim::Batch(1));
    batch.map(SampleAxis::plain)
}

fn expand(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let target = context.known_integers(1)?;
    let target: Vec<usize> = sizes_of(target)?;
    context.output(broadcast_dims(context.dims(0)?, &target)?)
}

/// Broadcasts the input. If the input has no samples, such as a class token, all samples become equal.
fn expand_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    match view.input(0)? {
        RowUse::PerSample(samples) => {
            let added = view.output_dims()?.len().checked_sub(view.rank(0)?)?;
            Some(samples.on(samples.axis + added))
        }
        RowUse::Independent => filled(view),
        RowUse::Position(_) | RowUse::Index(_) | RowUse::Mixed => None,
    }
}

fn tile(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let repeats = context.known_integers(1)?;
    let pairs = context.dims(0)?.iter().zip(repeats);
    context.output(
        pairs
            .map(|(&dim, &times)| Ok(dim.saturating_mul(unsigned(times)?)))
            .collect::<RuleResult<_>>()?,
    )
}

/// Requires that samples are not repeated. If the input has no samples, such as a position encoding, all
/// samples become equal.
fn tiled_rows(view: &RowView<'_>) -> Option<SampleAxis> {
    match view.input(0)? {
        RowUse::PerSample(_) => axis_kept(view),
        RowUse::Independent => filled(view),
        RowUse::Position(_) | RowUse::Index(_) | RowUse::Mixed => None,
    }
}

fn tile_growth(growth: &Growth<'_>) -> Result<(), Why> {
    let (Ok(Some(small)), Ok(Some(large))) = (growth.small.integers(1), growth.large.integers(1)) else {
        return Ok(());
    };
    let open = growth.open_axes();
    if open.iter().any(|&axis| small.get(axis) != large.get(axis)) {
        return Err("repeats the batch a number of times that depends on the batch");
    }
    Ok(())
}

fn scales(context: &Context<'_>) -> Option<Vec<f64>> {
    if let Some(scales) = context.node.attribute("scales") {
        return Some(scales.floats.iter().map(|&scale| scale.into()).collect());
    }
    let first = context.node.op_type == "Upsample" || context.opset < 11;
    let scales = context.input(if first { 1 } else { 2 })?.literal.as_ref()?;
    Some(scales.numbers())
}

/// Infers `Resize` and `Upsample` if the sizes or scales are known. The attribute `axes` and other aspect
/// ratio policies than `stretch` are not supported.
fn resize(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    if context.node.attribute("axes").is_some()
        || context
            .node
            .text("keep_aspect_ratio_policy")
            .is_some_and(|p| p != "stretch")
    {
        return Err(Unresolved::Unknown);
    }
    if let Some(sizes) = context.integers(3)?.filter(|sizes| !sizes.is_empty()) {
        return context.output(sizes_of(sizes)?);
    }
    let scales = scales(context).ok_or(Unresolved::Unknown)?;
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
    context.output(scaled.collect())
}

fn resize_growth(growth: &Growth<'_>) -> Result<(), Why> {
    safe_scales(growth)?;
    growth.fixed(&[1, 2])?;
    growth.batch_first()
}

/// Checks that scales do not change the batch, and do not give a size that an engine with lower precision
/// could round differently.
fn safe_scales(growth: &Growth<'_>) -> Result<(), Why> {
    const DIGITS: f64 = 1e-3;
    let (Ok(dims), Some(scales)) = (growth.small.dims(0), scales(&growth.small)) else {
        return Ok(());
    };
    let open = growth.open_axes();
    if dims.iter().zip(scales).enumerate().all(|(axis, (&dim, scale))| {
        let part = as_number(signed(dim)) * scale;
        let rest = part - part.floor();
        (!open.contains(&axis) || scale.to_bits() == 1_f64.to_bits())
            && (scale.fract() == 0.0 || rest == 0.0 || (DIGITS..1.0 - DIGITS).contains(&rest))
    }) {
        return Ok(());
    }
    Err("scales to a size that engines may round differently, or scales the batch")
}
