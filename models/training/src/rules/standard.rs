//! What normalizations share: a tensor brought to mean 0 and variance 1 over some of its axes, and its gradient.

use crate::emitter::Emitter;

/// `hat = (x - mean) · inverse`, where `inverse = 1 / sqrt(variance + epsilon)`, and what its gradient needs.
pub(super) struct Standardized {
    pub(super) hat: String,
    /// Over the axes, kept with length 1.
    pub(super) mean: String,
    /// Of all elements, not of a sample of them.
    pub(super) variance: String,
    inverse: String,
    axes: Vec<usize>,
}

impl Standardized {
    pub(super) fn new(emit: &mut Emitter, x: &str, axes: &[usize], epsilon: f64) -> Self {
        let mean = emit.mean(x, axes.iter().copied(), true);
        let centered = emit.sub(x, &mean);
        let squares = emit.mul(&centered, &centered);
        let variance = emit.mean(&squares, axes.iter().copied(), true);
        let epsilon = emit.scalar(epsilon);
        let shifted = emit.add(&variance, &epsilon);
        let deviation = emit.node("Sqrt", &[&shifted], vec![]);
        let inverse = emit.node("Reciprocal", &[&deviation], vec![]);
        Self {
            hat: emit.mul(&centered, &inverse),
            mean,
            variance,
            inverse,
            axes: axes.to_vec(),
        }
    }

    /// The gradient of `x` from that of `hat`: `inverse · (d - mean(d) - hat · mean(d · hat))`.
    pub(super) fn gradient(&self, emit: &mut Emitter, d: &str) -> String {
        let along = emit.mul(d, &self.hat);
        let along = emit.mean(&along, self.axes.iter().copied(), true);
        let level = emit.mean(d, self.axes.iter().copied(), true);
        let projected = emit.mul(&self.hat, &along);
        let rest = emit.sub(d, &level);
        let rest = emit.sub(&rest, &projected);
        emit.mul(&rest, &self.inverse)
    }
}
