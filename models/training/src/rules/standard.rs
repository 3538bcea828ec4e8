//! Standardization to mean 0 and variance 1 over some axes, shared by normalizations.

use crate::emitter::Emitter;

/// Standardized tensor `hat = (x - mean) · inverse` with `inverse = 1 / sqrt(variance + epsilon)`.
pub(super) struct Standardized {
    pub(super) hat: String,
    /// Mean over the axes, which stay with length 1.
    pub(super) mean: String,
    /// Biased variance.
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

    /// Returns the gradient of `x` from the gradient `d` of `hat`: `inverse · (d - mean(d) - hat · mean(d ·
    /// hat))`.
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
