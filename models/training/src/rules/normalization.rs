//! BatchNormalization. Scale and bias are trained. Mean and variance are either stored or computed from the
//! batch.

use super::standard::Standardized;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::mode::BatchNorm;
use crate::state::SlotKind;
use crate::tape::{Tape, TensorForm, Value};

pub(super) fn batch_normalization(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    if call.int("training_mode", 0) != 0 {
        // Standardized convolutions normalize a weight by its own statistics.
        if call
            .node
            .input_name(0)
            .is_some_and(|name| call.source.is_derived(name))
        {
            return standardized(tape, call, false);
        }
        return Err(call.unsupported("it is in training mode; export the network after `model.eval()`"));
    }
    if call.source.batch_norm != BatchNorm::Updated {
        return by_stored_statistics(tape, call);
    }
    let rank = call.value(0)?.rank();
    let channels = call.value(0)?.channels();
    statistics(call, rank, channels)?;
    if call.value(0)?.elements() > channels {
        standardized(tape, call, true)
    } else {
        keep_statistics(tape, call);
        by_stored_statistics(tape, call)
    }
}

fn by_stored_statistics(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let scale = call.value(1)?;
    let bias = call.value(2)?;
    let rank = input.rank();
    let channels = input.channels();
    let (mean, inverse) = stored(tape, call, [rank, channels])?;

    let form = tape.preferred_form(&[&input]);
    let x = tape.tensor(&input, form);
    let gamma = tape.standard(&scale);
    let beta = tape.standard(&bias);
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
        let total = tape.sum_per_channel(&dy, gradient, form);
        if scale.is_differentiable() {
            // Equal to sum(dy * (x - mean)) * inverse, without another tensor of the size of x.
            let along = tape.emit.mul(&dy, &x);
            let along = tape.sum_per_channel(&along, gradient, form);
            let across = tape.emit.mul(&total, &mean);
            let centered = tape.emit.sub(&along, &across);
            let gradient = tape.emit.mul(&centered, &inverse);
            tape.accumulate_tensor(&scale, TensorForm::Standard, gradient);
        }
        tape.accumulate_tensor(&bias, TensorForm::Standard, total);
        if input.is_differentiable() {
            let dx = tape.emit.mul(&dy, &slope);
            tape.accumulate_tensor(&input, form, dx);
        }
    });
    Ok(output)
}

/// Returns the stored channel means and the reciprocals of the deviations. If statistics move, the current
/// values come from the slots.
fn stored(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    [rank, channels]: [usize; 2],
) -> Result<(String, String), TrainingError> {
    let (mean, inverse) = statistics(call, rank, channels)?;
    let emit = &mut tape.emit;
    let moving = (call.node.input_name(3), call.node.input_name(4));
    let ((Some(mean), Some(variance)), BatchNorm::Updated) = (moving, call.source.batch_norm) else {
        return Ok((
            emit.floats(&[channels], &mean),
            emit.floats(&[channels], &inverse),
        ));
    };
    let epsilon = emit.scalar(call.float("epsilon", 1e-5));
    let variance = emit.add(&SlotKind::Statistic.input(variance), &epsilon);
    let deviation = emit.node("Sqrt", &[&variance], vec![]);
    let inverse = emit.node("Reciprocal", &[&deviation], vec![]);
    Ok((SlotKind::Statistic.input(mean), inverse))
}

/// Returns the channel means in the file and the reciprocals of the deviations.
fn statistics(
    call: &NodeCall<'_>,
    rank: usize,
    channels: usize,
) -> Result<(Vec<f64>, Vec<f64>), TrainingError> {
    let (Some(mean), Some(variance)) = (call.constant_floats(3)?, call.constant_floats(4)?) else {
        return Err(call.unsupported("it has no stored mean and variance"));
    };
    if rank < 2 || mean.len() != channels || variance.len() != channels {
        return Err(call.unsupported("mean and variance do not match the channels"));
    }
    let epsilon = call.float("epsilon", 1e-5);
    let inverse = variance.iter().map(|variance| 1.0 / (variance + epsilon).sqrt());
    Ok((mean, inverse.collect()))
}

/// Normalizes with mean and variance over all axes except for the channels. If `moves` is set, the stored
/// statistics are updated.
fn standardized(tape: &mut Tape, call: &NodeCall<'_>, moves: bool) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let scale = call.value(1)?;
    let bias = call.value(2)?;
    let rank = input.rank();
    let channels = input.channels();
    let form = tape.preferred_form(&[&input]);
    let axes: Vec<usize> = match form {
        TensorForm::Rows => vec![0],
        _ => std::iter::once(0).chain(2..rank).collect(),
    };
    let x = tape.tensor(&input, form);
    let standard = Standardized::new(&mut tape.emit, &x, &axes, call.float("epsilon", 1e-5));
    if moves {
        move_statistics(tape, call, &standard, &input);
    }

    let gamma = tape.standard(&scale);
    let beta = tape.standard(&bias);
    let gamma = tape.per_channel(&gamma, channels, rank, form);
    let beta = tape.per_channel(&beta, channels, rank, form);
    let scaled = tape.emit.mul(&standard.hat, &gamma);
    let result = tape.emit.add(&scaled, &beta);
    let output = call.output(form, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, form);
        if scale.is_differentiable() {
            let along = tape.emit.mul(&dy, &standard.hat);
            let along = tape.sum_per_channel(&along, gradient, form);
            tape.accumulate_tensor(&scale, TensorForm::Standard, along);
        }
        if bias.is_differentiable() {
            let total = tape.sum_per_channel(&dy, gradient, form);
            tape.accumulate_tensor(&bias, TensorForm::Standard, total);
        }
        if input.is_differentiable() {
            let dhat = tape.emit.mul(&dy, &gamma);
            let dx = standard.gradient(&mut tape.emit, &dhat);
            tape.accumulate_tensor(&input, form, dx);
        }
    });
    Ok(output)
}

/// Emits `momentum · stored + (1 - momentum) · batch`. The variance is the unbiased one.
fn move_statistics(tape: &mut Tape, call: &NodeCall<'_>, batch: &Standardized, input: &Value) {
    let channels = input.channels();
    let count = (input.elements() / channels.max(1)) as f64;
    let momentum = call.float("momentum", 0.9);
    let unbiased = count / (count - 1.0);
    for (slot, tensor, factor) in [(3, &batch.mean, 1.0), (4, &batch.variance, unbiased)] {
        let Some(name) = call.node.input_name(slot) else {
            continue;
        };
        let kept = tape.emit.scale(&SlotKind::Statistic.input(name), momentum);
        let flat = tape.emit.reshape(tensor, &[channels]);
        let added = tape.emit.scale(&flat, (1.0 - momentum) * factor);
        let next = tape.emit.add(&kept, &added);
        tape.statistics.push((name.to_owned(), next));
    }
}

fn keep_statistics(tape: &mut Tape, call: &NodeCall<'_>) {
    for name in [3, 4].into_iter().filter_map(|slot| call.node.input_name(slot)) {
        let kept = tape
            .emit
            .node("Identity", &[&SlotKind::Statistic.input(name)], vec![]);
        tape.statistics.push((name.to_owned(), kept));
    }
}
