//! BatchNormalization with frozen statistics: scale and bias are trained, mean and variance stay as they are.

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

pub(super) fn batch_normalization(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let (input, scale, bias) = (call.value(0)?, call.value(1)?, call.value(2)?);
    let (rank, channels) = (input.rank(), input.channels());
    let (mean, inverse) = statistics(call, rank, channels)?;
    let inverse = tape.emit.floats(&[channels], &inverse);
    let mean = tape.emit.floats(&[channels], &mean);

    let form = tape.preferred_form(&[&input]);
    let x = tape.tensor(&input, form);
    let (gamma, beta) = (tape.standard(&scale), tape.standard(&bias));
    let slope = tape.emit.mul(&gamma, &inverse);
    let shift = tape.emit.mul(&mean, &slope);
    let offset = tape.emit.sub(&beta, &shift);
    let offset = tape.per_channel(&offset, channels, rank, form);
    let slope = tape.per_channel(&slope, channels, rank, form);
    let scaled = tape.emit.mul(&x, &slope);
    let result = tape.emit.add(&scaled, &offset);
    let output = call.output(form, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, form);
        let total = tape.sum_per_channel(&dy, rank, form);
        if scale.is_differentiable() {
            // sum(dy * (x - mean)) * inverse, without another tensor of x's size
            let along = tape.emit.mul(&dy, &x);
            let along = tape.sum_per_channel(&along, rank, form);
            let across = tape.emit.mul(&total, &mean);
            let centred = tape.emit.sub(&along, &across);
            let gradient = tape.emit.mul(&centred, &inverse);
            tape.accumulate_tensor(&scale, Form::Standard, gradient);
        }
        tape.accumulate_tensor(&bias, Form::Standard, total);
        if input.is_differentiable() {
            let dx = tape.emit.mul(&dy, &slope);
            tape.accumulate_tensor(&input, form, dx);
        }
    });
    Ok(output)
}

/// The mean of each channel, and one over its deviation.
fn statistics(call: &Call<'_>, rank: usize, channels: usize) -> Result<(Vec<f64>, Vec<f64>), TrainingError> {
    let (Some(mean), Some(variance)) = (call.constant_floats(3)?, call.constant_floats(4)?) else {
        return Err(call.unsupported("it has no stored mean and variance"));
    };
    if call.int("training_mode", 0) != 0 {
        return Err(call.unsupported("it is in training mode; export the network in evaluation mode"));
    }
    if rank < 2 || mean.len() != channels || variance.len() != channels {
        return Err(call.unsupported("its statistics do not fit its channels"));
    }
    let epsilon = call.float("epsilon", 1e-5);
    let inverse = variance.iter().map(|variance| 1.0 / (variance + epsilon).sqrt());
    Ok((mean, inverse.collect()))
}
