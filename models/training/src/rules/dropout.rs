//! Dropout from the settings. Exporters remove dropout from the network, because it does nothing during
//! inference.

use crate::tape::{Tape, TensorForm, Value};

/// Returns the shape of a mask for `value` in the current form.
pub(crate) fn mask_dims(tape: &Tape, value: &Value) -> Vec<usize> {
    match tape.preferred_form(&[value]) {
        TensorForm::Standard => value.shape().to_vec(),
        _ => vec![value.elements() / value.channels().max(1), value.channels()],
    }
}

/// Multiplies `value` by a mask with the shape from [`mask_dims`].
pub(crate) fn dropout(tape: &mut Tape, value: &Value, mask: String) -> Value {
    let form = tape.preferred_form(&[value]);
    let x = tape.tensor(value, form);
    let y = tape.emit.mul(&x, &mask);
    let output = Value::new(value.shape(), form, y, value.is_differentiable());
    tape.on_backward_to(value.clone(), &output, form, move |tape, dy| {
        tape.emit.mul(dy, &mask)
    });
    output
}
