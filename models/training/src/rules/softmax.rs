use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};
use frostline_graph::build;

/// Softmax inside the suffix, as in attention.
pub(super) fn softmax(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let rank = input.rank();
    let axis = call.axis(call.int("axis", if call.opset() < 13 { 1 } else { -1 }), rank)?;
    if call.opset() < 13 && axis + 1 != rank {
        return Err(call.unsupported("before operator set 13 it runs over several axes at once"));
    }
    let x = tape.standard(&input);
    let y = tape
        .emit
        .node("Softmax", &[&x], vec![build::int("axis", axis as i64)]);
    let output = call.output(Form::Standard, y.clone());
    tape.on_backward_to(input, &output, Form::Standard, move |tape, dy| {
        let weighted = tape.emit.mul(dy, &y);
        let total = tape.emit.sum(&weighted, [axis], true);
        let centred = tape.emit.sub(dy, &total);
        tape.emit.mul(&centred, &y)
    });
    Ok(output)
}
