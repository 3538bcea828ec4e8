//! Checks that the outputs of a node grow linearly with the batch if the inputs do.

use crate::onnx::NodeProto;
use crate::operators;
use crate::values::{Growth, Line, Pair, Probes, Why, lines, open_axes};

/// Checks a node whose outputs are known to `probes`.
pub(super) fn check(node: &NodeProto, probes: &Probes) -> Result<(), Why> {
    let operator = operators::find(node);
    let growth = Growth::from_probes(node, probes);
    operator.map_or(Ok(()), |operator| (operator.growth)(&growth))?;
    if !growth.depends_on_batch() {
        return Ok(());
    }
    for (slot, name) in node.output.iter().enumerate() {
        let output = probes.both(name);
        check_dims(output)?;
        let known = output.0.literal.is_some() || output.1.literal.is_some();
        if slot == 0
            && known
            && !(operator.is_some_and(|operator| (operator.straight)(&growth)) && is_straight(output))
        {
            return Err("computes sizes with a nonlinear dependency on the batch");
        }
    }
    Ok(())
}

/// Returns true if all elements are known, and are independent of the batch or integers that are linear in
/// it.
fn is_straight(value: Pair<'_>) -> bool {
    let known = value.0.literal.is_some() && value.1.literal.is_some();
    known && (value.0.literal == value.1.literal || lines(value).is_some())
}

/// Checks that a single axis depends on the batch, that the axis grows with the batch, and that it is not
/// empty if the batch size is 1.
fn check_dims(value: Pair<'_>) -> Result<(), Why> {
    let (Some(small), Some(large)) = (&value.0.dims, &value.1.dims) else {
        return Ok(());
    };
    if small.len() != large.len() {
        return Err("has an output rank that depends on the batch");
    }
    let open = open_axes(value);
    if open.len() > 1 {
        return Err("has an output that grows with the square of the batch");
    }
    let grows = |axis: &usize| {
        let size = |dims: &[usize]| dims.get(*axis).and_then(|&size| i64::try_from(size).ok());
        let line = Line::through(size(small)?, size(large)?)?;
        (line.slope > 0 && line.slope.checked_add(line.offset)? > 0).then_some(())
    };
    if open.iter().all(|axis| grows(axis).is_some()) {
        Ok(())
    } else {
        Err("has an output size that does not grow linearly with the batch")
    }
}
