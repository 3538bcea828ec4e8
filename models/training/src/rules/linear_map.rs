//! Linear maps along single axes: a product with a small constant matrix in the forward pass, and with the
//! transpose in the backward pass.

use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

/// Linear map along an axis by the matrix `weights[out][in]`.
pub(super) struct Map {
    axis: usize,
    inputs: usize,
    outputs: usize,
    weights: Vec<f64>,
}

impl Map {
    /// Creates a map from the inputs of every output, with weights.
    pub(super) fn new(axis: usize, inputs: usize, parts: Vec<Vec<(usize, f64)>>) -> Self {
        let mut weights = vec![0.0; inputs * parts.len()];
        for (row, parts) in weights.chunks_mut(inputs.max(1)).zip(&parts) {
            for (input, share) in parts {
                if let Some(weight) = row.get_mut(*input) {
                    *weight += share;
                }
            }
        }
        Self {
            axis,
            inputs,
            outputs: parts.len(),
            weights,
        }
    }

    /// Applies the map to `tensor` with shape `dims`, or the transpose if `back` is set. `dims` becomes the
    /// shape of the result.
    fn apply(&self, tape: &mut Tape, tensor: &str, dims: &mut [usize], back: bool) -> String {
        let (from, to) = if back {
            (self.outputs, self.inputs)
        } else {
            (self.inputs, self.outputs)
        };
        let flipped: Vec<f64> = (0..self.inputs)
            .flat_map(|column| self.weights.iter().skip(column).step_by(self.inputs.max(1)))
            .copied()
            .collect();
        let (forth, flipped) = if back {
            (&flipped, &self.weights)
        } else {
            (&self.weights, &flipped)
        };
        let before: usize = dims.iter().take(self.axis).product();
        let after: usize = dims.iter().skip(self.axis + 1).product();
        if let Some(length) = dims.get_mut(self.axis) {
            *length = to;
        }
        let mapped = if after == 1 {
            let rows = tape.emit.reshape(tensor, &[before, from]);
            let matrix = tape.emit.floats(&[from, to], flipped);
            tape.emit.node("MatMul", &[&rows, &matrix], vec![])
        } else {
            let columns = tape.emit.reshape(tensor, &[before, from, after]);
            let matrix = tape.emit.floats(&[to, from], forth);
            tape.emit.node("MatMul", &[&matrix, &columns], vec![])
        };
        tape.emit.reshape(&mapped, dims)
    }
}

/// Emits the node as a sequence of maps.
pub(super) fn mapped(tape: &mut Tape, call: &NodeCall<'_>, input: Value, maps: Vec<Map>) -> Value {
    if maps.is_empty() {
        return input;
    }
    let mut dims = input.shape().to_vec();
    let mut result = tape.standard(&input);
    for map in &maps {
        result = map.apply(tape, &result, &mut dims, false);
    }
    let output = call.output(TensorForm::Standard, result);
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        let mut dx = dy.to_owned();
        for map in maps.iter().rev() {
            dx = map.apply(tape, &dx, &mut dims, true);
        }
        dx
    });
    output
}
