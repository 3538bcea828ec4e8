//! Follows the positions of samples through a network. Exporters look up a mask with indices that contain the number
//! of the sample, from a `Range` up to the batch. Such a lookup keeps samples independent.

use crate::onnx::{NodeProto, data_type};
use crate::operators;
use crate::values::{Dim, Probes, RowUse, RowUses, RowView, SampleAxis, SamplePosition, axis_of};

/// Returns true if a node moves elements, and does not change those of integers.
fn moves(node: &NodeProto) -> bool {
    node.rearranges() || matches!(node.standard_operator(), Some("Cast" | "Expand"))
}

/// Returns the row use of a node that computes positions or looks up elements with them, or `None` for other nodes.
pub(crate) fn follow(view: RowView<'_>) -> Option<RowUse> {
    match view.node.standard_operator()? {
        "Range" => counted(&view).map(RowUse::Position),
        "Mul" => scaled(&view).map(RowUse::Position),
        "Add" => shifted(&view).map(RowUse::Position),
        "Concat" => vectors(&view).map(RowUse::Index),
        "Gather" => looked_up(&view).map(RowUse::PerSample),
        "GatherND" => looked_up_by_vectors(&view).map(RowUse::PerSample),
        _ if moves(view.node) => moved(view).map(RowUse::Position),
        _ => None,
    }
}

/// Returns the exclusive upper bound of a node's output, if it consists of integers from 0 that do not depend on
/// samples. `Range` defines bounds, because its elements are known only if there are few.
pub(crate) fn bound(node: &NodeProto, probes: &Probes, uses: &RowUses) -> Option<i64> {
    match node.standard_operator()? {
        "Range" if counts(node, probes) => match probes.dims(node.output_name(0)?)?.as_slice() {
            [Dim::Fixed(count)] => i64::try_from(*count).ok(),
            _ => None,
        },
        _ if moves(node) && keeps_integers(node) => uses.bound(node.input_name(0)?),
        _ => None,
    }
}

/// Returns true for a `Range` of integers from 0 in steps of 1.
fn counts(node: &NodeProto, probes: &Probes) -> bool {
    let output = node.output_name(0).map(|name| probes.data_type(name));
    matches!(output, Some(data_type::INT64 | data_type::INT32))
        && [(0, 0), (2, 1)].into_iter().all(|(slot, wanted)| {
            let known = node.input_name(slot).and_then(|name| probes.fixed_integers(name));
            known == Some(&[wanted][..])
        })
}

/// Returns true for a node that is not a `Cast` to another type than integers.
fn keeps_integers(node: &NodeProto) -> bool {
    let wide = [data_type::INT64, data_type::INT32].map(i64::from);
    node.op_type != "Cast" || node.int("to").is_some_and(|to| wide.contains(&to))
}

fn counted(view: &RowView<'_>) -> Option<SamplePosition> {
    let is_batch = view.output_dims()? == [Dim::Batch(1)];
    (is_batch && counts(view.node, view.probes)).then_some(SamplePosition {
        axis: 0,
        step: 1,
        spread: 1,
    })
}

fn position(view: &RowView<'_>, slot: usize) -> Option<SamplePosition> {
    match view.input(slot)? {
        RowUse::Position(position) => Some(position),
        _ => None,
    }
}

fn moved(view: RowView<'_>) -> Option<SamplePosition> {
    let position = position(&view, 0).filter(|_| keeps_integers(view.node))?;
    let view = RowView {
        moves_positions: true,
        ..view
    };
    let samples = (operators::find(view.node)?.rows)(&view)?;
    (samples == SampleAxis::plain(samples.axis)).then_some(SamplePosition {
        axis: samples.axis,
        ..position
    })
}

/// Returns the position among the inputs of a node with two inputs, on the axis of the output, and the other slot.
fn operand(view: &RowView<'_>) -> Option<(SamplePosition, usize)> {
    let slot = (0..2).find(|slot| position(view, *slot).is_some())?;
    let found = position(view, slot)?;
    let other = 1 - slot;
    let added = view.output_dims()?.len().checked_sub(view.rank(slot)?)?;
    let axis = found.axis + added;
    let is_two = view.node.input.len() == 2 && view.is_parameter(other);
    is_two.then_some((SamplePosition { axis, ..found }, other))
}

fn scaled(view: &RowView<'_>) -> Option<SamplePosition> {
    let (position, other) = operand(view)?;
    let factors = view.probes.fixed_integers(view.node.input_name(other)?)?;
    let (factor, rest) = factors.split_first()?;
    let is_one = *factor > 0 && rest.iter().all(|other| other == factor);
    let spread = (position.spread - 1).checked_mul(*factor)?.checked_add(1)?;
    let step = position.step.checked_mul(*factor)?;
    is_one.then_some(SamplePosition {
        step,
        spread,
        ..position
    })
}

fn shifted(view: &RowView<'_>) -> Option<SamplePosition> {
    let (position, other) = operand(view)?;
    let name = view.node.input_name(other)?;
    let bound = match view.probes.fixed_integers(name) {
        Some(values) if values.iter().all(|value| *value >= 0) => values.iter().max()?.checked_add(1)?,
        _ => view.uses.bound(name)?,
    };
    let spread = position.spread.checked_add(bound)?.checked_sub(1)?;
    Some(SamplePosition { spread, ..position })
}

/// Returns the sample axis of indices for `GatherND`.
fn vectors(view: &RowView<'_>) -> Option<usize> {
    let position = position(view, 0).filter(|position| (position.step, position.spread) == (1, 1))?;
    let dims = view.dims(0)?;
    let last = dims.len().checked_sub(1).filter(|last| *last > position.axis)?;
    let axis = axis_of(view.node.int("axis")?, dims.len()).ok()?;
    let plain = RowUse::PerSample(SampleAxis::plain(position.axis));
    let others = (1..view.node.input.len()).map(|slot| view.input(slot));
    let mut others = others.map(|other| other == Some(RowUse::Independent) || other == Some(plain));
    let is_vector = axis == last && dims.get(last) == Some(&Dim::Fixed(1)) && others.all(|fits| fits);
    is_vector.then_some(position.axis)
}

/// Looks up elements in an axis that contains all elements of a sample.
fn looked_up(view: &RowView<'_>) -> Option<SampleAxis> {
    let samples = view.samples(0)?;
    let position = position(view, 1)?;
    let is_own = view.axis(0)? == samples.axis
        && samples.outer == 1
        && i64::try_from(samples.inner) == Ok(position.step)
        && position.spread <= position.step;
    is_own.then(|| SampleAxis::plain(samples.axis + position.axis))
}

fn looked_up_by_vectors(view: &RowView<'_>) -> Option<SampleAxis> {
    let RowUse::Index(axis) = view.input(1)? else {
        return None;
    };
    let is_whole = view.node.int("batch_dims").unwrap_or(0) == 0;
    (is_whole && view.samples(0)? == SampleAxis::plain(0)).then(|| SampleAxis::plain(axis))
}
