//! Whether what a node makes follows the batch in straight lines, when its inputs do.

use crate::onnx::NodeProto;
use crate::operators;
use crate::values::{Growth, Line, Pair, Probes, Why, lines, open_axes};

/// Checks a node whose outputs `probes` knows.
pub(super) fn check(node: &NodeProto, probes: &Probes) -> Result<(), Why> {
    let operator = operators::find(node);
    let growth = Growth::from_probes(node, probes);
    operator.map_or(Ok(()), |operator| (operator.growth)(&growth))?;
    if !growth.moves() {
        return Ok(());
    }
    for (slot, name) in node.output.iter().enumerate() {
        let output = probes.both(name);
        check_dims(output)?;
        let known = output.0.literal.is_some() || output.1.literal.is_some();
        let stays = |operator: &operators::Operator| (operator.straight)(&growth);
        if slot == 0 && known && !(operator.is_some_and(stays) && is_straight(output)) {
            return Err("computes sizes from the batch other than as a multiple of it and a fixed number");
        }
    }
    Ok(())
}

/// Whether all elements are integers on straight lines.
fn is_straight(value: Pair<'_>) -> bool {
    let known = value.0.literal.is_some() && value.1.literal.is_some();
    known && (value.0.literal == value.1.literal || lines(value).is_some())
}

/// One axis at most depends on the batch, it grows with it, and it is there for a batch of one.
fn check_dims(value: Pair<'_>) -> Result<(), Why> {
    let (Some(small), Some(large)) = (&value.0.dims, &value.1.dims) else {
        return Ok(());
    };
    if small.len() != large.len() {
        return Err("has more axes for one batch than for another");
    }
    let open = open_axes(value);
    if open.len() > 1 {
        return Err("makes something that grows with the square of the batch");
    }
    let grows = |axis: &usize| {
        let size = |dims: &[usize]| dims.get(*axis).and_then(|&size| i64::try_from(size).ok());
        let line = Line::through(size(small)?, size(large)?)?;
        (line.times > 0 && line.times.checked_add(line.plus)? > 0).then_some(())
    };
    if open.iter().all(|axis| grows(axis).is_some()) {
        Ok(())
    } else {
        Err("makes something whose size does not grow evenly with the batch")
    }
}
