//! Pad. The gradient of a constant padding is a padding with negated widths. Paddings with elements of the
//! tensor are linear maps.

use super::linear_map::{Map, mapped};
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

pub(super) fn pad(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let pads = paddings(call, input.rank())?;
    let mode = call.node.text("mode").unwrap_or("constant");
    if mode == "constant" {
        return constant_pad(tape, call, input, &pads);
    }
    let sides = pads.iter().take(input.rank()).zip(pads.iter().skip(input.rank()));
    let mut maps = Vec::new();
    for (axis, (length, (before, after))) in input.shape().iter().zip(sides).enumerate() {
        if (*before, *after) == (0, 0) {
            continue;
        }
        let places = -before..*length as i64 + after;
        let parts = places.map(|place| mirrored(mode, place, *length as i64).map(|place| vec![(place, 1.0)]));
        let parts = parts.collect::<Option<Vec<_>>>();
        let parts = parts.ok_or_else(|| {
            call.unsupported(format!(
                "padding an axis of length {length} in mode '{mode}' is not supported"
            ))
        })?;
        maps.push(Map::new(axis, *length, parts));
    }
    Ok(mapped(tape, call, input, maps))
}

/// Returns the position that is copied to the position `place`, both relative to the start of an axis with
/// length `length`. Returns `None` for an unknown mode, or if a reflection leaves the axis.
fn mirrored(mode: &str, place: i64, length: i64) -> Option<usize> {
    let last = length - 1;
    let inside = match mode {
        "reflect" if place < 0 => -place,
        "reflect" if place > last => 2 * last - place,
        "reflect" => place,
        "edge" => place.clamp(0, last.max(0)),
        "wrap" => place.rem_euclid(length.max(1)),
        _ => return None,
    };
    usize::try_from(inside)
        .ok()
        .filter(|place| *place <= last.unsigned_abs() as usize)
}

fn constant_pad(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    input: Value,
    pads: &[i64],
) -> Result<Value, TrainingError> {
    let filling = if call.opset() < 11 {
        call.float("value", 0.0)
    } else {
        let stored = call.constant_floats(2)?;
        stored.and_then(|values| values.first().copied()).unwrap_or(0.0)
    };
    let x = tape.standard(&input);
    let widths = tape.emit.ints(pads.iter().copied());
    let filling = tape.emit.scalar(filling);
    let result = tape.emit.node("Pad", &[&x, &widths, &filling], vec![]);
    let output = call.output(TensorForm::Standard, result);
    let widths = tape.emit.ints(pads.iter().map(|width| -width));
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        tape.emit.node("Pad", &[dy, &widths], vec![])
    });
    Ok(output)
}

/// Returns the padding before and after every axis: first all beginnings, then all ends.
fn paddings(call: &NodeCall<'_>, rank: usize) -> Result<Vec<i64>, TrainingError> {
    let stated = call.ints("pads", 1)?.unwrap_or_default();
    let axes: Vec<usize> = match call.constant_ints(3)? {
        Some(axes) => axes
            .iter()
            .map(|axis| call.axis(*axis, rank))
            .collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if stated.len() != 2 * axes.len() {
        return Err(call.unsupported(format!("the pads {stated:?} do not match {} axes", axes.len())));
    }
    let mut pads = vec![0; 2 * rank];
    let (begins, ends) = stated.split_at(axes.len());
    for (axis, (begin, end)) in axes.iter().zip(begins.iter().zip(ends)) {
        if let Some(before) = pads.get_mut(*axis) {
            *before = *begin;
        }
        if let Some(after) = pads.get_mut(axis + rank) {
            *after = *end;
        }
    }
    Ok(pads)
}
