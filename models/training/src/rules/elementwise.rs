//! Rules of elementwise operators.

use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::{Emitter, Float};
use crate::tape::{Tape, Value};
use frostline_graph::build;
use frostline_graph::onnx::NodeProto;

/// Node and tensors available to a backward pass: the input, the output and the gradient of the output.
pub(crate) struct Tensors<'a> {
    pub(super) node: &'a NodeProto,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) dy: &'a str,
}

impl Tensors<'_> {
    pub(super) fn float(&self, name: &str, default: f32) -> f64 {
        self.node.float(name).unwrap_or(default).into()
    }
}

/// Emits the gradient of the input.
pub(crate) type Backward = fn(&mut Emitter, &Tensors<'_>) -> String;

/// Emits the elementwise operator of the node in the forward pass, and `backward` for the gradient.
pub(super) fn function(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    backward: Backward,
) -> Result<Value, TrainingError> {
    let node = call.node;
    unary(
        tape,
        call,
        |emit, x| emit.node(&node.op_type, &[x], node.attribute.clone()),
        backward,
    )
}

/// Emits an elementwise operator in the current form of the input. `forward` computes y from x, and
/// `backward` the gradient of x.
pub(super) fn unary(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    forward: impl FnOnce(&mut Emitter, &str) -> String,
    backward: impl FnOnce(&mut Emitter, &Tensors<'_>) -> String + 'static,
) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let form = tape.preferred_form(&[&input]);
    let x = tape.tensor(&input, form);
    let y = forward(&mut tape.emit, &x);
    let output = call.output(form, y.clone());
    let node = call.node.clone();
    tape.on_backward_to(input, &output, form, move |tape, dy| {
        let tensors = Tensors {
            node: &node,
            x: &x,
            y: &y,
            dy,
        };
        backward(&mut tape.emit, &tensors)
    });
    Ok(output)
}

/// Selects `dy` where `condition` is true and zero elsewhere. `Where` is half as fast in ONNX Runtime.
fn only_where(emit: &mut Emitter, condition: &str, dy: &str) -> String {
    let ones = emit.cast_float(condition);
    emit.mul(dy, &ones)
}

/// Converts a tensor without negative numbers to 1 for positive numbers and 0 for zero.
fn ones_where_positive(emit: &mut Emitter, tensor: &str) -> String {
    match emit.float {
        // A single pass instead of Greater and Cast: the factor saturates all normal positive numbers at 1.
        // ONNX Runtime only supports this operator in `f32`.
        Float::F32 => {
            let settings = vec![build::float("alpha", f32::MAX), build::float("beta", 0.0)];
            emit.node("HardSigmoid", &[tensor], settings)
        }
        Float::F64 => {
            let zero = emit.scalar(0.0);
            let positive = emit.node("Greater", &[tensor, &zero], vec![]);
            emit.cast_float(&positive)
        }
    }
}

pub(super) fn relu(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let ones = ones_where_positive(emit, at.y);
    emit.mul(at.dy, &ones)
}

pub(super) fn leaky_relu(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let zero = emit.scalar(0.0);
    let positive = emit.node("Greater", &[at.x, &zero], vec![]);
    let leaked = emit.scale(at.dy, at.float("alpha", 0.01));
    emit.node("Where", &[&positive, at.dy, &leaked], vec![])
}

/// The gradient is zero for inputs at or outside of a bound, like in PyTorch's `hardtanh` and `relu6`.
pub(super) fn clip(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let (low, high) = clip_bounds(call)?;
    unary(
        tape,
        call,
        move |emit, x| {
            let bounds = [low, high];
            let [low, high] = bounds.map(|bound| bound.map_or_else(String::new, |bound| emit.scalar(bound)));
            emit.node("Clip", &[x, &low, &high], vec![])
        },
        move |emit, at| {
            let mut dx = at.dy.to_owned();
            for (operator, bound) in [("Greater", low), ("Less", high)] {
                if let Some(bound) = bound {
                    let bound = emit.scalar(bound);
                    let inside = emit.node(operator, &[at.x, &bound], vec![]);
                    dx = only_where(emit, &inside, &dx);
                }
            }
            dx
        },
    )
}

/// Returns the bounds of a Clip. Bounds are attributes before operator set 11 and inputs since then.
fn clip_bounds(call: &NodeCall<'_>) -> Result<(Option<f64>, Option<f64>), TrainingError> {
    if call.opset() < 11 {
        let [low, high] = ["min", "max"].map(|name| call.node.float(name).map(f64::from));
        return Ok((low, high));
    }
    let [low, high] = [call.constant_floats(1)?, call.constant_floats(2)?]
        .map(|values| values.and_then(|values| values.first().copied()));
    Ok((low, high))
}

pub(super) fn sigmoid(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let square = emit.mul(at.y, at.y);
    let slope = emit.sub(at.y, &square);
    emit.mul(at.dy, &slope)
}

pub(super) fn tanh(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let square = emit.mul(at.y, at.y);
    let one = emit.scalar(1.0);
    let slope = emit.sub(&one, &square);
    emit.mul(at.dy, &slope)
}
