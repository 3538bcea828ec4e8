//! Operators that work on every element alone.

use crate::TrainingError;
use crate::call::Call;
use crate::emitter::Emitter;
use crate::tape::{Tape, Value};
use frostline_graph::build;

/// What a backward pass may use: the tensors of the input, the output, and the output's gradient.
struct Known<'a> {
    x: &'a str,
    y: &'a str,
    dy: &'a str,
}

/// `forward` makes y of x; `backward` makes the gradient of x. Both in whatever form x has.
fn unary(
    tape: &mut Tape,
    call: &Call<'_>,
    forward: impl FnOnce(&mut Emitter, &str) -> String,
    backward: impl FnOnce(&mut Emitter, &Known<'_>) -> String + 'static,
) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let form = tape.preferred_form(&[&input]);
    let x = tape.tensor(&input, form);
    let y = forward(&mut tape.emit, &x);
    let output = Value::new(input.shape(), form, y.clone(), input.is_differentiable());
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, form);
        let dx = backward(
            &mut tape.emit,
            &Known {
                x: &x,
                y: &y,
                dy: &dy,
            },
        );
        tape.accumulate_tensor(&input, form, dx);
        Ok(())
    });
    Ok(output)
}

/// `dy` where `condition` holds, zero elsewhere.
fn only_where(emit: &mut Emitter, condition: &str, dy: &str) -> String {
    let zero = emit.scalar(0.0);
    emit.node("Where", &[condition, dy, &zero], vec![])
}

pub(super) fn relu(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let forward = |emit: &mut Emitter, x: &str| emit.node("Relu", &[x], vec![]);
    unary(tape, call, forward, |emit, known| {
        let zero = emit.scalar(0.0);
        let positive = emit.node("Greater", &[known.y, &zero], vec![]);
        only_where(emit, &positive, known.dy)
    })
}

pub(super) fn leaky_relu(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let alpha = call.float("alpha", 0.01);
    let forward = move |emit: &mut Emitter, x: &str| {
        emit.node("LeakyRelu", &[x], vec![build::float("alpha", alpha as f32)])
    };
    unary(tape, call, forward, move |emit, known| {
        let zero = emit.scalar(0.0);
        let positive = emit.node("Greater", &[known.x, &zero], vec![]);
        let leaked = emit.scale(known.dy, alpha);
        emit.node("Where", &[&positive, known.dy, &leaked], vec![])
    })
}

/// Nothing flows where the input lies at or beyond a bound, as in PyTorch's `hardtanh` and `relu6`.
pub(super) fn clip(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let (low, high) = clip_bounds(call)?;
    let forward = move |emit: &mut Emitter, x: &str| {
        let [low, high] = [low, high].map(|bound| bound.map_or_else(String::new, |bound| emit.scalar(bound)));
        emit.node("Clip", &[x, &low, &high], vec![])
    };
    unary(tape, call, forward, move |emit, known| {
        let mut dx = known.dy.to_owned();
        for (operator, bound) in [("Greater", low), ("Less", high)] {
            if let Some(bound) = bound {
                let bound = emit.scalar(bound);
                let inside = emit.node(operator, &[known.x, &bound], vec![]);
                dx = only_where(emit, &inside, &dx);
            }
        }
        dx
    })
}

/// The bounds of a Clip: attributes before operator set 11, inputs since.
fn clip_bounds(call: &Call<'_>) -> Result<(Option<f64>, Option<f64>), TrainingError> {
    if call.opset() < 11 {
        let bound = |name| call.node.float(name).map(f64::from);
        return Ok((bound("min"), bound("max")));
    }
    let first = |values: Option<Vec<f64>>| values.and_then(|values| values.first().copied());
    Ok((first(call.constant_floats(1)?), first(call.constant_floats(2)?)))
}

pub(super) fn sigmoid(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let forward = |emit: &mut Emitter, x: &str| emit.node("Sigmoid", &[x], vec![]);
    unary(tape, call, forward, |emit, known| {
        let square = emit.mul(known.y, known.y);
        let slope = emit.sub(known.y, &square);
        emit.mul(known.dy, &slope)
    })
}

pub(super) fn tanh(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let forward = |emit: &mut Emitter, x: &str| emit.node("Tanh", &[x], vec![]);
    unary(tape, call, forward, |emit, known| {
        let square = emit.mul(known.y, known.y);
        let one = emit.scalar(1.0);
        let slope = emit.sub(&one, &square);
        emit.mul(known.dy, &slope)
    })
}
