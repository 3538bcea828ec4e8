//! One rule per operator: it emits the operator's forward pass and leaves on the tape what its backward pass will emit.

mod arithmetic;
mod convolution;
mod elementwise;
mod linear;
mod movement;
mod normalization;
mod pooling;
mod reduction;
mod softmax;

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Tape, Value};

/// Emits the forward pass of a node and returns its output.
pub(crate) fn forward(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    match call.node.standard_operator() {
        Some("Conv") => convolution::conv(tape, call),
        Some("Gemm") => linear::gemm(tape, call),
        Some("MatMul") => linear::matmul(tape, call),
        Some("Add") => arithmetic::add(tape, call),
        Some("Sub") => arithmetic::sub(tape, call),
        Some("Mul") => arithmetic::mul(tape, call),
        Some("Div") => arithmetic::div(tape, call),
        Some("Relu") => elementwise::relu(tape, call),
        Some("LeakyRelu") => elementwise::leaky_relu(tape, call),
        Some("Clip") => elementwise::clip(tape, call),
        Some("Sigmoid") => elementwise::sigmoid(tape, call),
        Some("Tanh") => elementwise::tanh(tape, call),
        Some("MaxPool") => pooling::max_pool(tape, call),
        Some("AveragePool") => pooling::average_pool(tape, call),
        Some("GlobalAveragePool") => reduction::global_average_pool(tape, call),
        Some("ReduceMean") => reduction::reduce_mean(tape, call),
        Some("BatchNormalization") => normalization::batch_normalization(tape, call),
        Some("Softmax") => softmax::softmax(tape, call),
        Some("Reshape" | "Flatten" | "Squeeze" | "Unsqueeze") => movement::reshape(tape, call),
        Some("Transpose") => movement::transpose(tape, call),
        Some("Concat") => movement::concat(tape, call),
        Some("Identity" | "Dropout") => call.value(0),
        Some("Cast") if call.int("to", 0) == i64::from(tape.emit.float.data_type()) => call.value(0),
        _ => Err(call.no_rule()),
    }
}
