//! LayerNormalization and RMSNormalization: every row is divided by the deviation, then scaled and shifted.

use super::arithmetic::reduce_to;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Float;
use crate::tape::{Tape, TensorForm, Value};
use frostline_graph::build;
use frostline_graph::onnx::AttributeProto;

/// Operands and axes of the normalization.
#[derive(Clone)]
struct NormOperands {
    input: Value,
    scale: Option<Value>,
    bias: Option<Value>,
    /// First normalized axis.
    axis: usize,
    epsilon: f64,
}

impl NormOperands {
    fn from_call(call: &NodeCall<'_>) -> Result<Self, TrainingError> {
        let input = call.value(0)?;
        let axis = call.axis(call.int("axis", -1), input.rank())?;
        let scale = call.optional(1);
        let bias = call.optional(2);
        Ok(Self {
            input,
            scale,
            bias,
            axis,
            epsilon: call.float("epsilon", 1e-5),
        })
    }

    fn row(&self) -> &[usize] {
        self.input.shape().get(self.axis..).unwrap_or_default()
    }

    fn axes(&self) -> std::ops::Range<usize> {
        self.axis..self.input.rank()
    }

    fn attributes(&self) -> Vec<AttributeProto> {
        vec![
            build::int("axis", self.axis as i64),
            build::float("epsilon", self.epsilon as f32),
        ]
    }

    /// Accumulates the gradients of scale, bias and input. With `g = dy * scale` and the normalized input
    /// `x`, the gradient of the input is `(g - mean(g) - x * mean(g * x)) / deviation`, as in Ba et al.,
    /// Layer Normalization (2016). RMSNormalization has no first mean.
    fn backward(&self, tape: &mut Tape, dy: &str, of: &Normalized) {
        let Normalized {
            normal,
            inverse,
            centered,
        } = of;
        let dims = self.input.shape();
        let along = tape.emit.mul(dy, normal);
        if let Some(bias) = self.bias.as_ref().filter(|bias| bias.is_differentiable()) {
            let sum = reduce_to(tape, dy, dims, bias.shape());
            tape.accumulate_tensor(bias, TensorForm::Standard, sum);
        }
        if let Some(scale) = self.scale.as_ref().filter(|scale| scale.is_differentiable()) {
            let sum = reduce_to(tape, &along, dims, scale.shape());
            tape.accumulate_tensor(scale, TensorForm::Standard, sum);
        }
        if !self.input.is_differentiable() {
            return;
        }
        let scale = self.scale.as_ref().map(|scale| tape.standard(scale));
        let slope = scaled(tape, dy, scale.as_deref());
        let along = scaled(tape, &along, scale.as_deref());
        let along = tape.emit.mean(&along, self.axes(), true);
        let share = tape.emit.mul(normal, &along);
        let mut rest = tape.emit.sub(&slope, &share);
        if *centered {
            let mean = tape.emit.mean(&slope, self.axes(), true);
            rest = tape.emit.sub(&rest, &mean);
        }
        let dx = tape.emit.mul(&rest, inverse);
        tape.accumulate_tensor(&self.input, TensorForm::Standard, dx);
    }
}

fn scaled(tape: &mut Tape, tensor: &str, scale: Option<&str>) -> String {
    match scale {
        Some(scale) => tape.emit.mul(tensor, scale),
        None => tensor.to_owned(),
    }
}

/// Normalized input before scale and bias.
struct Normalized {
    normal: String,
    /// Reciprocal of the deviations.
    inverse: String,
    /// True if the means were subtracted.
    centered: bool,
}

pub(super) fn layer_normalization(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let operands = NormOperands::from_call(call)?;
    let x = tape.standard(&operands.input);
    let scale = tape.standard(&call.value(1)?);
    let bias = operands.bias.as_ref().map(|bias| tape.standard(bias));
    let inputs: Vec<&str> = [x.as_str(), &scale].into_iter().chain(bias.as_deref()).collect();
    let y = tape
        .emit
        .node("LayerNormalization", &inputs, operands.attributes());
    let output = call.output(TensorForm::Standard, y);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        // Normalize again, without scale and bias, which is cheaper than keeping the result of the forward
        // pass.
        let ones = vec![1.0; operands.row().iter().product()];
        let ones = tape.emit.floats(operands.row(), &ones);
        let inputs = [x.as_str(), &ones];
        let [normal, _, inverse] = tape
            .emit
            .nodes("LayerNormalization", &inputs, operands.attributes());
        // ONNX computes statistics in `f32`.
        let inverse = match tape.emit.float {
            Float::F32 => inverse,
            Float::F64 => tape.emit.cast_float(&inverse),
        };
        let of = Normalized {
            normal,
            inverse,
            centered: true,
        };
        operands.backward(tape, &dy, &of);
    });
    Ok(output)
}

pub(super) fn rms_normalization(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let operands = NormOperands {
        bias: None,
        ..NormOperands::from_call(call)?
    };
    let x = tape.standard(&operands.input);
    let scale = tape.standard(&call.value(1)?);
    let square = tape.emit.mul(&x, &x);
    let mean = tape.emit.mean(&square, operands.axes(), true);
    let epsilon = tape.emit.scalar(operands.epsilon);
    let raised = tape.emit.add(&mean, &epsilon);
    let deviation = tape.emit.node("Sqrt", &[&raised], vec![]);
    let inverse = tape.emit.node("Reciprocal", &[&deviation], vec![]);
    let normal = tape.emit.mul(&x, &inverse);
    let y = tape.emit.mul(&normal, &scale);
    let output = call.output(TensorForm::Standard, y);
    let of = Normalized {
        normal,
        inverse,
        centered: false,
    };
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        operands.backward(tape, &dy, &of);
    });
    Ok(output)
}
