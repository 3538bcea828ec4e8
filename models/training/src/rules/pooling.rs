//! MaxPool, GlobalMaxPool and AveragePool.

use super::convolution::window_gradient;
use super::parts::gather_padded;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};
use crate::windows::Windows;
use frostline_graph::build;
use frostline_graph::onnx::{AttributeProto, data_type};

/// The forward pass also returns the flat index of every maximum. The backward pass adds the gradients at
/// these indices.
pub(super) fn max_pool(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let attributes = call.node.attribute.iter();
    let attributes = attributes.filter(|attribute| attribute.name != "storage_order");
    max_pool_with(tape, call, attributes.cloned().collect())
}

/// Emits a zero that depends on `indices`. A constant would be expanded when the session is opened, and stay
/// in memory.
fn zero_of(tape: &mut Tape, indices: &str) -> String {
    let first = tape.emit.integer(0);
    let axis = vec![build::int("axis", 0)];
    let first = tape.emit.node("Gather", &[indices, &first], axis);
    let first = tape.emit.cast_float(&first);
    tape.emit.sub(&first, &first)
}

/// Emits a MaxPool with a single window over all positions.
pub(super) fn global_max_pool(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let kernel: Vec<i64> = input.spatial().iter().map(|size| *size as i64).collect();
    max_pool_with(tape, call, vec![build::ints("kernel_shape", &kernel)])
}

fn max_pool_with(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    attributes: Vec<AttributeProto>,
) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let x = tape.standard(&input);
    let [result, indices] = tape.emit.nodes("MaxPool", &[&x], attributes);
    // Indices stay in memory until the backward pass, so store them in 32 bits if possible.
    let indices = if input.elements() <= i32::MAX as usize {
        tape.emit.cast(&indices, data_type::INT32)
    } else {
        indices
    };
    let output = call.output(TensorForm::Standard, result);
    let flat = [output.elements()];
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        let dy = tape.emit.reshape(dy, &flat);
        let indices = tape.emit.reshape(&indices, &flat);
        let nothing = zero_of(tape, &indices);
        let zeros = tape.emit.expand(&nothing, &[dims.iter().product()]);
        let attributes = vec![build::int("axis", 0), build::text("reduction", "add")];
        let scattered = tape
            .emit
            .node("ScatterElements", &[&zeros, &indices, &dy], attributes);
        tape.emit.reshape(&scattered, &dims)
    });
    Ok(output)
}

pub(super) fn average_pool(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let kernel = call.sizes("kernel_shape", input.spatial().len(), 1)?;
    let windows = Windows::new(call, input.spatial(), &kernel)?;
    if windows.is_identity() {
        return Ok(input);
    }
    let counts = windows.counts(call.int("count_include_pad", 0) != 0);
    let shares: Vec<f64> = counts.iter().map(|count| 1.0 / (*count).max(1) as f64).collect();
    let batch = input.batch();
    let channels = input.channels();
    let shares = tape.emit.floats(&[windows.outputs(), 1], &shares);

    let rows = tape.rows(&input);
    let images = tape.emit.reshape(&rows, &[batch, windows.inputs(), channels]);
    let seen = gather_padded(tape, &images, &windows.pattern(), windows.inputs());
    let dims = [batch, windows.outputs(), windows.taps(), channels];
    let seen = tape.emit.reshape(&seen, &dims);
    let sums = tape.emit.sum(&seen, [2], false);
    let means = tape.emit.mul(&sums, &shares);
    let result = tape.emit.reshape(&means, &[batch * windows.outputs(), channels]);
    let output = call.output(TensorForm::Rows, result);
    tape.on_backward_to(input, &output, TensorForm::Rows, move |tape, rows| {
        let images = tape.emit.reshape(rows, &[batch, windows.outputs(), channels]);
        let shared = tape.emit.mul(&images, &shares);
        let spread = window_gradient(tape, &shared, &windows, |emit, gathered, phase| {
            let seen = [batch, phase.positions.len(), phase.taps.len(), channels];
            let seen = emit.reshape(gathered, &seen);
            emit.sum(&seen, [2], false)
        });
        tape.emit.reshape(&spread, &[batch * windows.inputs(), channels])
    });
    Ok(output)
}
