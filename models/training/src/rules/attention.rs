//! Attention as a single operator, emitted as products, mask and softmax.

use super::arithmetic;
use super::linear::multiplied;
use super::movement::{reshaped, transposed};
use super::softmax::shares;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

/// Queries, keys and values have the shape `[batch, heads, tokens, width]`, or `[batch, tokens, heads *
/// width]` with the number of heads as an attribute. Queries with the same key are adjacent, so they form the
/// rows of a single product.
pub(super) fn attention(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    check(call)?;
    let flat = call.value(0)?.rank() == 3;
    let query = heads(tape, call, 0, "q_num_heads")?;
    let key = heads(tape, call, 1, "kv_num_heads")?;
    let value = heads(tape, call, 2, "kv_num_heads")?;
    let (&[batch, count, queries, width], &[_, groups, keys, _]) = (query.shape(), key.shape()) else {
        return Err(call.unsupported("queries and keys must have three or four axes"));
    };
    let rows = count / groups.max(1) * queries;
    let factor = call.float("scale", (1.0 / (width as f64).sqrt()) as f32);
    let query = scaled(tape, &query, factor);
    let query = reshaped(tape, &query, &[batch, groups, rows, width]);
    let turned = transposed(tape, &key, vec![0, 1, 3, 2]);
    let scores = multiplied(tape, query, turned, &[batch, groups, rows, keys]);
    let scores = reshaped(tape, &scores, &[batch, count, queries, keys]);
    let scores = masked(tape, call, scores)?;
    let scores = if call.int("is_causal", 0) == 0 {
        scores
    } else {
        causal(tape, &scores, queries, keys)
    };
    let shares = shares(tape, scores, 3);
    let shares = reshaped(tape, &shares, &[batch, groups, rows, keys]);
    let width = value.shape().last().copied().unwrap_or(1);
    let mixed = multiplied(tape, shares, value, &[batch, groups, rows, width]);
    let mixed = reshaped(tape, &mixed, &[batch, count, queries, width]);
    if !flat {
        return Ok(mixed);
    }
    let joined = transposed(tape, &mixed, vec![0, 2, 1, 3]);
    Ok(reshaped(tape, &joined, &call.output_shape))
}

/// Refuses features that classifiers do not use.
fn check(call: &NodeCall<'_>) -> Result<(), TrainingError> {
    if call.int("qk_matmul_output_mode", 0) != 0 {
        return Err(call.unsupported("the output of scores is not supported"));
    }
    let others = (4..call.node.input.len()).any(|slot| call.node.input_name(slot).is_some());
    if others || call.float("softcap", 0.0) != 0.0 {
        return Err(call.unsupported("past keys, padded keys and capped scores are not supported"));
    }
    Ok(())
}

/// Masks the scores of keys after the position of the query.
fn causal(tape: &mut Tape, scores: &Value, queries: usize, keys: usize) -> Value {
    let places = (0..queries).flat_map(|query| (0..keys).map(move |key| key > query));
    let mask: Vec<f64> = places
        .map(|behind| if behind { f64::NEG_INFINITY } else { 0.0 })
        .collect();
    let dims = [queries, keys];
    let mask = tape.emit.floats(&dims, &mask);
    arithmetic::sum(
        tape,
        scores,
        &Value::new(&dims, TensorForm::Standard, mask, false),
    )
}

/// Returns the operand in `slot` with an axis for heads.
fn heads(tape: &mut Tape, call: &NodeCall<'_>, slot: usize, count: &str) -> Result<Value, TrainingError> {
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
    tape.on_backward_to(input.clone(), &output, TensorForm::Standard, move |tape, dy| {
        tape.emit.scale(dy, factor)
    });
    output
}

/// Adds the mask to the scores. A boolean mask becomes 0 for true and minus infinity for false.
fn masked(tape: &mut Tape, call: &NodeCall<'_>, scores: Value) -> Result<Value, TrainingError> {
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
    let mask = Value::new(dims.unwrap_or_default(), TensorForm::Standard, mask, false);
    Ok(arithmetic::sum(tape, &scores, &mask))
}
