//! Attention as one operator: the products, mask and softmax it stands for.

use super::arithmetic;
use super::linear::multiplied;
use super::movement::{reshaped, transposed};
use super::softmax::shares;
use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

/// Queries, keys and values as `[batch, heads, tokens, width]`, or as `[batch, tokens, heads * width]` with the number of heads.
pub(super) fn attention(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    for (setting, plain) in [("is_causal", 0), ("qk_matmul_output_mode", 0)] {
        if call.int(setting, plain) != plain {
            return Err(call.unsupported(format!("its {setting} is {}", call.int(setting, plain))));
        }
    }
    let others = (4..call.node.input.len()).any(|slot| call.node.input_name(slot).is_some());
    if others || call.float("softcap", 0.0) != 0.0 {
        return Err(call.unsupported("it keeps earlier keys, pads them or caps its scores"));
    }
    let flat = call.value(0)?.rank() == 3;
    let query = heads(tape, call, 0, "q_num_heads")?;
    let key = heads(tape, call, 1, "kv_num_heads")?;
    let value = heads(tape, call, 2, "kv_num_heads")?;
    let (&[batch, count, queries, width], &[_, keyed, keys, _]) = (query.shape(), key.shape()) else {
        return Err(call.unsupported("its operands have neither three nor four axes"));
    };
    if count != keyed {
        return Err(call.unsupported("several queries share a key"));
    }
    let factor = call.float("scale", (1.0 / (width as f64).sqrt()) as f32);
    let query = scaled(tape, &query, factor);
    let turned = transposed(tape, &key, vec![0, 1, 3, 2]);
    let full = [batch, count, queries, keys];
    let scores = multiplied(tape, query, turned, &full);
    let scores = masked(tape, call, scores)?;
    let shares = shares(tape, scores, 3);
    let width = value.shape().last().copied().unwrap_or(1);
    let mixed = multiplied(tape, shares, value, &[batch, count, queries, width]);
    if !flat {
        return Ok(mixed);
    }
    let joined = transposed(tape, &mixed, vec![0, 2, 1, 3]);
    Ok(reshaped(tape, &joined, call.output_shape()))
}

/// The operand in `slot` with an axis of heads.
fn heads(tape: &mut Tape, call: &Call<'_>, slot: usize, count: &str) -> Result<Value, TrainingError> {
    let operand = call.value(slot)?;
    let &[batch, tokens, width] = operand.shape() else {
        return Ok(operand);
    };
    let heads = usize::try_from(call.int(count, 1)).unwrap_or(1).max(1);
    let apart = reshaped(tape, &operand, &[batch, tokens, heads, width / heads]);
    Ok(transposed(tape, &apart, vec![0, 2, 1, 3]))
}

fn scaled(tape: &mut Tape, input: &Value, factor: f64) -> Value {
    let x = tape.standard(input);
    let y = tape.emit.scale(&x, factor);
    let output = Value::computed(input.shape(), y, &[input]);
    tape.on_backward_to(input.clone(), &output, Form::Standard, move |tape, dy| {
        tape.emit.scale(dy, factor)
    });
    output
}

/// The scores with the mask added, or with nothing but minus infinity where a mask of truth values does not hold.
fn masked(tape: &mut Tape, call: &Call<'_>, scores: Value) -> Result<Value, TrainingError> {
    if call.node.input_name(3).is_none() {
        return Ok(scores);
    }
    if let Some(mask) = call.optional(3) {
        return Ok(arithmetic::sum(tape, &scores, &mask));
    }
    let zero = tape.emit.scalar(0.0);
    let never = tape.emit.scalar(f64::NEG_INFINITY);
    let mask = tape.emit.node("Where", &[call.plain(3)?, &zero, &never], vec![]);
    let dims = call
        .node
        .input_name(3)
        .and_then(|name| call.source.shapes.dims(name));
    let mask = Value::new(dims.unwrap_or_default(), Form::Standard, mask, false);
    Ok(arithmetic::sum(tape, &scores, &mask))
}
