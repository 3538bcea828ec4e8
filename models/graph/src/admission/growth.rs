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
    if open_axes(value).len() > 1 {
        return Err("has an output that grows with the square of the batch");
    }
    let mut sizes = small.iter().zip(large);
    if sizes.all(|(&small, &large)| small == large || grows(small, large) == Some(true)) {
        Ok(())
    } else {
        Err("has an output size that does not grow linearly with the batch")
    }
}

/// Returns true if an axis with these sizes grows linearly and is not empty for a batch of 1, or `None` if
/// there is no line through the sizes.
fn grows(small: usize, large: usize) -> Option<bool> {
    let line = Line::through(i64::try_from(small).ok()?, i64::try_from(large).ok()?)?;
    Some(line.slope > 0 && line.slope.checked_add(line.offset)? > 0)
}
