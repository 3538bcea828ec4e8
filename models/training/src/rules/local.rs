//! LRN, which scales every element down by the neighbors in other channels.

use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};
use std::ops::RangeInclusive;

/// Emits `y = x · b^-beta` with `b = bias + alpha/size · sum`, where `sum` adds the squares of the
/// neighboring channels. The sum is a product with a band matrix over channels.
pub(super) fn lrn(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let size = call.int("size", 1).max(1);
    let channels = input.channels();
    let alpha = call.float("alpha", 1e-4);
    let beta = call.float("beta", 0.75);
    let bias = tape.emit.scalar(call.float("bias", 1.0));
    let before = (size - 1) / 2;
    let after = size / 2;
    let share = alpha / size as f64;
    let dims = [channels, channels];
    let forth = tape.emit.floats(&dims, &band(channels, -before..=after, share));
    let back = tape.emit.floats(&dims, &band(channels, -after..=before, share));

    let x = tape.rows(&input);
    let squares = tape.emit.mul(&x, &x);
    let sums = tape.emit.node("MatMul", &[&squares, &forth], vec![]);
    let base = tape.emit.add(&sums, &bias);
    let exponent = tape.emit.scalar(-beta);
    let factor = tape.emit.node("Pow", &[&base, &exponent], vec![]);
    let y = tape.emit.mul(&x, &factor);
    let output = call.output(TensorForm::Rows, y.clone());
    tape.on_backward_to(input, &output, TensorForm::Rows, move |tape, dy| {
        let direct = tape.emit.mul(dy, &factor);
        let along = tape.emit.mul(dy, &y);
        let along = tape.emit.div(&along, &base);
        let spread = tape.emit.node("MatMul", &[&along, &back], vec![]);
        let through = tape.emit.mul(&x, &spread);
        let through = tape.emit.scale(&through, -2.0 * beta);
        tape.emit.add(&direct, &through)
    });
    Ok(output)
}

/// Returns a matrix with `share` if row minus column is in `places`, and 0 elsewhere.
fn band(channels: usize, places: RangeInclusive<i64>, share: f64) -> Vec<f64> {
    let all = (0..channels).flat_map(|row| (0..channels).map(move |column| (row, column)));
    all.map(|(row, column)| f64::from(places.contains(&(row as i64 - column as i64))) * share)
        .collect()
}
