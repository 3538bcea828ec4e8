//! Rules of Where, Max and Min.

use super::arithmetic::reduce_to;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

/// Accumulates into `value` a gradient with the shape of the result.
fn accumulate(tape: &mut Tape, value: &Value, gradient: &str, full: &[usize]) {
    let reduced = reduce_to(tape, gradient, full, value.shape());
    tape.accumulate_tensor(value, TensorForm::Standard, reduced);
}

pub(super) fn select(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let condition = call.plain(0)?.to_owned();
    let yes = call.value(1)?;
    let no = call.value(2)?;
    let a = tape.standard(&yes);
    let b = tape.standard(&no);
    let y = tape.emit.node("Where", &[&condition, &a, &b], vec![]);
    let output = call.output(TensorForm::Standard, y);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        let zero = tape.emit.scalar(0.0);
        for (value, [a, b]) in [(&yes, [&dy, &zero]), (&no, [&zero, &dy])] {
            if value.is_differentiable() {
                let part = tape.emit.node("Where", &[&condition, a, b], vec![]);
                accumulate(tape, value, &part, gradient.shape());
            }
        }
    });
    Ok(output)
}

/// Emits Max and Min of any number of operands. Like in `torch.maximum`, equal elements share the gradient.
pub(super) fn extreme(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let slots = 0..call.node.input.len();
    let values = slots
        .map(|slot| call.value(slot))
        .collect::<Result<Vec<Value>, _>>()?;
    let tensors: Vec<String> = values.iter().map(|value| tape.standard(value)).collect();
    let inputs: Vec<&str> = tensors.iter().map(String::as_str).collect();
    let y = tape.emit.node(&call.node.op_type, &inputs, vec![]);
    let output = call.output(TensorForm::Standard, y.clone());
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        let chosen: Vec<String> = tensors
            .iter()
            .map(|tensor| {
                let equal = tape.emit.node("Equal", &[tensor, &y], vec![]);
                tape.emit.cast_float(&equal)
            })
            .collect();
        let all: Vec<&str> = chosen.iter().map(String::as_str).collect();
        let count = tape.emit.node("Sum", &all, vec![]);
        let share = tape.emit.div(&dy, &count);
        for (value, chosen) in values.iter().zip(&chosen) {
            if value.is_differentiable() {
                let part = tape.emit.mul(chosen, &share);
                accumulate(tape, value, &part, gradient.shape());
            }
        }
    });
    Ok(output)
}
