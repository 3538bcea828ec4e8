//! Roots, powers, exponentials and the Gaussian error function.

use super::elementwise::{Tensors, unary};
use crate::TrainingError;
use crate::call::NodeCall;
use crate::emitter::Emitter;
use crate::tape::{Tape, Value};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

pub(super) fn abs(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let sign = emit.node("Sign", &[at.x], vec![]);
    emit.mul(at.dy, &sign)
}

pub(super) fn exp(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    emit.mul(at.dy, at.y)
}

pub(super) fn log(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    emit.div(at.dy, at.x)
}

pub(super) fn neg(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    emit.node("Neg", &[at.dy], vec![])
}

pub(super) fn reciprocal(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let square = emit.mul(at.y, at.y);
    let product = emit.mul(at.dy, &square);
    emit.node("Neg", &[&product], vec![])
}

pub(super) fn sqrt(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let half = emit.scale(at.dy, 0.5);
    emit.div(&half, at.y)
}

/// The slope is `2 / sqrt(pi) * exp(-x^2)`. Division by `exp(x^2)` saves a negation and gives 0 if the
/// exponential is infinite.
pub(super) fn erf(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let square = emit.mul(at.x, at.x);
    let growth = emit.node("Exp", &[&square], vec![]);
    let quotient = emit.div(at.dy, &growth);
    emit.scale(&quotient, FRAC_2_SQRT_PI)
}

pub(super) fn gelu(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    match at.node.text("approximate") {
        Some("tanh") => gelu_by_tanh(emit, at),
        _ => gelu_by_erf(emit, at),
    }
}

/// With `u = x / sqrt(2)`, the slope is `(1 + erf(u) + u * 2 / sqrt(pi) * exp(-u^2)) / 2`.
fn gelu_by_erf(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let u = emit.scale(at.x, FRAC_1_SQRT_2);
    let share = emit.node("Erf", &[&u], vec![]);
    let square = emit.mul(&u, &u);
    let growth = emit.node("Exp", &[&square], vec![]);
    let quotient = emit.div(&u, &growth);
    let density = emit.scale(&quotient, FRAC_2_SQRT_PI);
    let sum = emit.add(&share, &density);
    half_of_one_plus(emit, &sum, at.dy)
}

/// With `t = tanh(a * (x + b * x^3))`, the slope is `(1 + t + x * (1 - t^2) * a * (1 + 3 * b * x^2)) / 2`.
fn gelu_by_tanh(emit: &mut Emitter, at: &Tensors<'_>) -> String {
    let a = (2.0 / PI).sqrt();
    let b = 0.044_715;
    let one = emit.scalar(1.0);
    let bend = emit.scalar(a);
    let square = emit.mul(at.x, at.x);
    let scaled = emit.scale(&square, a * b);
    let factor = emit.add(&scaled, &bend);
    let inner = emit.mul(at.x, &factor);
    let t = emit.node("Tanh", &[&inner], vec![]);
    let steeper = emit.scale(&square, 3.0 * a * b);
    let steeper = emit.add(&steeper, &bend);
    let along = emit.mul(at.x, &steeper);
    let flat = emit.mul(&t, &t);
    let rest = emit.sub(&one, &flat);
    let bent = emit.mul(&along, &rest);
    let sum = emit.add(&t, &bent);
    half_of_one_plus(emit, &sum, at.dy)
}

/// `dy * (1 + sum) / 2`.
fn half_of_one_plus(emit: &mut Emitter, sum: &str, dy: &str) -> String {
    let half = emit.scalar(0.5);
    let slope = emit.scale(sum, 0.5);
    let slope = emit.add(&slope, &half);
    emit.mul(dy, &slope)
}

/// Pow with a single stored exponent.
pub(super) fn pow(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let exponent = match call.constant_floats(1) {
        Ok(numbers) => numbers,
        Err(_) => call
            .constant_ints(1)?
            .map(|whole| whole.into_iter().map(|n| n as f64).collect()),
    };
    let Some(&[exponent]) = exponent.as_deref() else {
        return Err(call.unsupported("the exponent must be a single number"));
    };
    unary(
        tape,
        call,
        move |emit, x| match exponent {
            2.0 => emit.mul(x, x),
            0.5 => emit.node("Sqrt", &[x], vec![]),
            _ => raise(emit, x, exponent),
        },
        move |emit, at| {
            let scaled = emit.scale(at.dy, exponent);
            match exponent {
                2.0 => emit.mul(&scaled, at.x),
                0.5 => emit.div(&scaled, at.y),
                _ => {
                    let slope = raise(emit, at.x, exponent - 1.0);
                    emit.mul(&scaled, &slope)
                }
            }
        },
    )
}

fn raise(emit: &mut Emitter, x: &str, exponent: f64) -> String {
    let exponent = emit.scalar(exponent);
    emit.node("Pow", &[x, &exponent], vec![])
}
