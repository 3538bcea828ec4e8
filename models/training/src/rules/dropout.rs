//! Dropout that somebody asked for: an exporter takes it away, since it does nothing at inference.

use crate::emitter::Emitter;
use crate::mode::Dropout;
use crate::tape::{Tape, Value};
use frostline_graph::build;

/// `value` with some elements dropped, in whatever form it has.
pub(crate) fn dropout(tape: &mut Tape, value: &Value, dropout: &Dropout) -> Value {
    if dropout.ratio == 0.0 {
        return value.clone();
    }
    let form = tape.preferred_form(&[value]);
    let x = tape.tensor(value, form);
    let (y, kept) = draw(&mut tape.emit, &x, dropout);
    let output = Value::new(value.shape(), form, y, value.is_differentiable());
    let scale = 1.0 / (1.0 - dropout.ratio);
    tape.on_backward_to(value.clone(), &output, form, move |tape, dy| {
        let zero = tape.emit.scalar(0.0);
        let scaled = tape.emit.scale(dy, scale);
        tape.emit.node("Where", &[&kept, &scaled, &zero], vec![])
    });
    output
}

/// What is left of `x`, scaled, and a mask of what was kept.
fn draw(emit: &mut Emitter, x: &str, dropout: &Dropout) -> (String, String) {
    let (ratio, training) = (emit.scalar(dropout.ratio), emit.truth());
    let seed = build::int("seed", (dropout.seed & 0x7fff_ffff) as i64);
    emit.node_pair("Dropout", &[x, &ratio, &training], vec![seed])
}
