//! Gemm and MatMul.

use super::arithmetic::reduce_to;
use super::movement::reshaped;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Emitter;
use crate::tape::{Tape, TensorForm, Value};
use frostline_graph::build;
use frostline_graph::onnx::AttributeProto;

/// Matrix operand: the tensor, and true if it is read transposed.
type Operand<'a> = (&'a str, bool);

fn product(
    emit: &mut Emitter,
    (left, flip_left): Operand<'_>,
    (right, flip_right): Operand<'_>,
    alpha: f64,
) -> String {
    emit.node("Gemm", &[left, right], attributes(alpha, flip_left, flip_right))
}

fn attributes(alpha: f64, flip_left: bool, flip_right: bool) -> Vec<AttributeProto> {
    vec![
        build::float("alpha", alpha as f32),
        build::int("transA", flip_left.into()),
        build::int("transB", flip_right.into()),
    ]
}

/// Accumulates the gradient of a matrix and registers it as a plain product.
fn accumulate_product(tape: &mut Tape, matrix: &Value, gradient: String) {
    if let &[rows, columns] = matrix.shape() {
        tape.emit.note_product(&gradient, [rows, columns]);
    }
    tape.accumulate_tensor(matrix, TensorForm::Standard, gradient);
}

pub(super) fn gemm(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let left = call.value(0)?;
    let right = call.value(1)?;
    let bias = call.optional(2);
    let alpha = call.float("alpha", 1.0);
    let beta = call.float("beta", 1.0);
    let flip_left = call.int("transA", 0) != 0;
    let flip_right = call.int("transB", 0) != 0;
    let a = tape.standard(&left);
    let b = tape.standard(&right);
    let c = bias.as_ref().map(|bias| tape.standard(bias));
    let inputs: Vec<&str> = [a.as_str(), &b].into_iter().chain(c.as_deref()).collect();
    let mut attributes = attributes(alpha, flip_left, flip_right);
    attributes.push(build::float("beta", beta as f32));
    let result = tape.emit.node("Gemm", &inputs, attributes);
    let output = call.output(TensorForm::Standard, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        if let Some(bias) = bias.filter(Value::is_differentiable) {
            let scaled = tape.emit.scale(&dy, beta);
            let sum = reduce_to(tape, &scaled, gradient.shape(), bias.shape());
            tape.accumulate_tensor(&bias, TensorForm::Standard, sum);
        }
        if left.is_differentiable() {
            let da = if flip_left {
                product(&mut tape.emit, (&b, flip_right), (&dy, true), alpha)
            } else {
                product(&mut tape.emit, (&dy, false), (&b, !flip_right), alpha)
            };
            accumulate_product(tape, &left, da);
        }
        if right.is_differentiable() {
            let db = if flip_right {
                product(&mut tape.emit, (&dy, true), (&a, flip_left), alpha)
            } else {
                product(&mut tape.emit, (&a, !flip_left), (&dy, false), alpha)
            };
            accumulate_product(tape, &right, db);
        }
    });
    Ok(output)
}

pub(super) fn matmul(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let left = call.value(0)?;
    let right = call.value(1)?;
    let mut full = call.output_shape.clone();
    if right.rank() == 1 {
        full.push(1);
    }
    if left.rank() == 1 {
        full.insert(full.len().saturating_sub(1), 1);
    }
    let left = if left.rank() == 1 {
        reshaped(tape, &left, &[&[1], left.shape()].concat())
    } else {
        left
    };
    let right = if right.rank() == 1 {
        reshaped(tape, &right, &[right.shape(), &[1]].concat())
    } else {
        right
    };
    let result = multiplied(tape, left, right, &full);
    Ok(reshaped(tape, &result, &call.output_shape))
}

/// Multiplies matrices. Leading axes broadcast to `shape`.
pub(super) fn multiplied(tape: &mut Tape, left: Value, right: Value, shape: &[usize]) -> Value {
    if right.rank() == 2 {
        multiplied_by_matrix(tape, left, right, shape)
    } else {
        multiplied_in_batches(tape, left, right, shape)
    }
}

/// Multiplies all rows of `left` by a single matrix.
fn multiplied_by_matrix(tape: &mut Tape, left: Value, right: Value, shape: &[usize]) -> Value {
    let inner = left.shape().last().copied().unwrap_or(1);
    let outer = right.shape().last().copied().unwrap_or(1);
    let rows = left.shape().iter().rev().skip(1).product();
    let a = tape.standard(&left);
    let b = tape.standard(&right);
    let a = tape.emit.reshape(&a, &[rows, inner]);
    let result = product(&mut tape.emit, (&a, false), (&b, false), 1.0);
    let result = tape.emit.reshape(&result, shape);
    tape.emit.note_rows(&result, outer);
    let output = Value::computed(shape, result, &[&left, &right]);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        let dy = tape.emit.reshape(&dy, &[rows, outer]);
        if left.is_differentiable() {
            let da = product(&mut tape.emit, (&dy, false), (&b, true), 1.0);
            let da = tape.emit.reshape(&da, left.shape());
            tape.accumulate_tensor(&left, TensorForm::Standard, da);
        }
        if right.is_differentiable() {
            let db = product(&mut tape.emit, (&a, true), (&dy, false), 1.0);
            accumulate_product(tape, &right, db);
        }
    });
    output
}

fn multiplied_in_batches(tape: &mut Tape, left: Value, right: Value, shape: &[usize]) -> Value {
    let a = tape.standard(&left);
    let b = tape.standard(&right);
    let result = tape.emit.node("MatMul", &[&a, &b], vec![]);
    let output = Value::computed(shape, result, &[&left, &right]);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        let batch = gradient.shape().get(..gradient.rank() - 2).unwrap_or_default();
        if left.is_differentiable() {
            let flipped = flip_matrices(&mut tape.emit, &b, right.rank());
            let da = tape.emit.node("MatMul", &[&dy, &flipped], vec![]);
            accumulate_matrices(tape, &left, da, batch);
        }
        if right.is_differentiable() {
            let flipped = flip_matrices(&mut tape.emit, &a, left.rank());
            let db = tape.emit.node("MatMul", &[&flipped, &dy], vec![]);
            accumulate_matrices(tape, &right, db, batch);
        }
    });
    output
}

fn flip_matrices(emit: &mut Emitter, tensor: &str, rank: usize) -> String {
    emit.transpose(tensor, (0..rank - 2).chain([rank - 1, rank - 2]))
}

/// Accumulates the gradient of a value with leading axes that were broadcast to `batch`.
fn accumulate_matrices(tape: &mut Tape, value: &Value, gradient: String, batch: &[usize]) {
    let matrix = value.shape().get(value.rank() - 2..).unwrap_or_default();
    let full = [batch, matrix].concat();
    let gradient = reduce_to(tape, &gradient, &full, value.shape());
    tape.accumulate_tensor(value, TensorForm::Standard, gradient);
}
