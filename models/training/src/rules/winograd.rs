//! Conv with a 3 x 3 kernel and stride 1 in fewer multiplications: Winograd's F(2x2, 3x3), as in Lavin and
//! Gray, Fast Algorithms for Convolutional Neural Networks (2015).
//!
//! The 2 x 2 output positions of a tile are computed from 4 x 4 input positions as `Aᵀ((G w Gᵀ) ⊙ (Bᵀ x
//! B))A`. The elementwise product is summed over channels before the output transform. Each of the three
//! transforms applies to rows and columns at once, as a product with a constant matrix with 16 rows or
//! columns. The sum over channels is a batched MatMul of 16 matrices, with 16 multiplications instead of 36.
//! Since all steps are linear, the backward pass consists of the transposed transforms around two such
//! MatMuls. Activations are stored as `[positions, n, c]` to gather tiles from the first axis.

use super::tiled::{self, BatchPart, Tiled};
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};
use crate::tiles::Tiles;

/// Number of input positions in a tile. `OUTPUT_POSITIONS` is the number of output positions, `TAPS` the number of kernel
/// taps.
const INPUT_POSITIONS: usize = 16;
const OUTPUT_POSITIONS: usize = 4;
const TAPS: usize = 9;

const INPUT: [[f64; 4]; 4] = [
    [1.0, 0.0, -1.0, 0.0],
    [0.0, 1.0, 1.0, 0.0],
    [0.0, -1.0, 1.0, 0.0],
    [0.0, 1.0, 0.0, -1.0],
];
const KERNEL: [[f64; 3]; 4] = [
    [1.0, 0.0, 0.0],
    [0.5, 0.5, 0.5],
    [0.5, -0.5, 0.5],
    [0.0, 0.0, 1.0],
];
const OUTPUT: [[f64; 4]; 2] = [[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, -1.0]];

pub(super) fn conv(tape: &mut Tape, call: &NodeCall<'_>, tiles: Tiles) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let weight = call.value(1)?;
    // Tiles contain 16 input positions and 16 products.
    let channels = input.channels().max(weight.batch());
    let image_bytes = INPUT_POSITIONS * tiles.count() * channels * size_of::<f32>();
    tiled::conv(tape, call, image_bytes, &tiles)
}

impl BatchPart<Tiles> {
    /// Returns the number of tiles in all images.
    fn columns(&self) -> usize {
        self.tiles.count() * self.images()
    }

    /// Rearranges rows `[n·positions, c]` to `[positions, n·c]`.
    fn by_position(&self, tape: &mut Tape, rows: &str, positions: usize, channels: usize) -> String {
        let images = self.images();
        tape.swap(
            rows,
            [images, positions, channels],
            [positions, images * channels],
        )
    }

    /// Rearranges `[positions, n·c]` to rows `[n·positions, c]`.
    fn by_image(&self, tape: &mut Tape, tensor: &str, positions: usize, channels: usize) -> String {
        let images = self.images();
        tape.swap(
            tensor,
            [positions, images, channels],
            [images * positions, channels],
        )
    }
}

impl Tiled for BatchPart<Tiles> {
    const GRADIENT: TensorForm = TensorForm::Taps;

    fn outputs(&self) -> usize {
        self.tiles.outputs()
    }

    /// Returns the transformed kernels, `[16, c, m]`.
    fn forward_kernels(&self, tape: &mut Tape) -> String {
        let kernels = self.backward_kernels(tape);
        tape.emit.transpose(&kernels, [0, 2, 1])
    }

    /// Returns the transformed kernels, `[16, m, c]`.
    fn backward_kernels(&self, tape: &mut Tape) -> String {
        let taps = tape.taps(&self.weight);
        let taps = tape
            .emit
            .reshape(&taps, &[TAPS, self.filters() * self.channels()]);
        let kernels = transformed(tape, &KERNEL, false, &taps);
        matrices(tape, &kernels, self.filters(), self.channels())
    }

    /// Returns the transformed tiles of the input, `[16, tiles·n, c]`.
    fn input_tiles(&self, tape: &mut Tape) -> String {
        let rows = tape.rows(&self.input);
        let positions = self.tiles.inputs();
        let channels = self.channels();
        let by_position = self.by_position(tape, &rows, positions, channels);
        let gathered = gather(tape, &by_position, &self.tiles.input_positions(), positions);
        let size = self.columns() * channels;
        let gathered = tape.emit.reshape(&gathered, &[INPUT_POSITIONS, size]);
        let seen = transformed(tape, &INPUT, false, &gathered);
        matrices(tape, &seen, self.columns(), channels)
    }

    /// Returns the output as `[n·outputs, m]`.
    fn forward(&self, tape: &mut Tape, seen: &str, kernels: &str) -> String {
        let filters = self.filters();
        let products = product(tape, seen, kernels, self.columns() * filters);
        let made = transformed(tape, &OUTPUT, false, &products);
        let tiles = OUTPUT_POSITIONS * self.tiles.count();
        let made = tape.emit.reshape(&made, &[tiles, self.images(), filters]);
        let by_position = tape.emit.gather(&made, self.tiles.output_indices(), 0);
        self.by_image(tape, &by_position, self.tiles.outputs(), filters)
    }

    /// Returns the transformed tiles of the output's gradient, `[16, tiles·n, m]`.
    fn gradient_tiles(&self, tape: &mut Tape, rows: &str) -> String {
        let positions = self.tiles.outputs();
        let filters = self.filters();
        let by_position = self.by_position(tape, rows, positions, filters);
        let gathered = gather(tape, &by_position, &self.tiles.output_positions(), positions);
        let size = self.columns() * filters;
        let gathered = tape.emit.reshape(&gathered, &[OUTPUT_POSITIONS, size]);
        let made = transformed(tape, &OUTPUT, true, &gathered);
        matrices(tape, &made, self.columns(), filters)
    }

    fn weight_gradient(&self, tape: &mut Tape, made: &str, seen: &str) -> String {
        let size = self.filters() * self.channels();
        let flipped = tape.emit.transpose(made, [0, 2, 1]);
        let products = product(tape, &flipped, seen, size);
        let gradient = transformed(tape, &KERNEL, true, &products);
        tape.emit.note_product(&gradient, [TAPS, size]);
        gradient
    }

    fn input_gradient(&self, tape: &mut Tape, made: &str, kernels: &str) -> String {
        let positions = self.tiles.inputs();
        let channels = self.channels();
        let products = product(tape, made, kernels, self.columns() * channels);
        let seen = transformed(tape, &INPUT, true, &products);
        let width = self.images() * channels;
        let emit = &mut tape.emit;
        let seen = emit.reshape(&seen, &[INPUT_POSITIONS * self.tiles.count(), width]);
        let gathered = emit.gather(&seen, self.tiles.input_indices(), 0);
        let gathered = emit.reshape(&gathered, &[OUTPUT_POSITIONS, positions * width]);
        let sum = emit.sum(&gathered, [0], false);
        let sum = emit.reshape(&sum, &[positions, width]);
        let shares = emit.floats(&[positions, 1], &self.tiles.shares());
        let sum = emit.mul(&sum, &shares);
        self.by_image(tape, &sum, positions, channels)
    }
}

/// Selects rows of a matrix with `length` rows. The index `length` selects zeros.
fn gather(tape: &mut Tape, matrix: &str, pattern: &[usize], length: usize) -> String {
    let padded = if pattern.contains(&length) {
        let pads = tape.emit.ints([0, 0, 1, 0]);
        tape.emit.node("Pad", &[matrix, &pads], vec![])
    } else {
        matrix.to_owned()
    };
    tape.emit.gather(&padded, pattern.iter().copied(), 0)
}

/// Applies `factor` to rows and columns of all tiles in the matrix `tiles`.
fn transformed<const N: usize>(
    tape: &mut Tape,
    factor: &[[f64; N]],
    transposed: bool,
    tiles: &str,
) -> String {
    let pairs = factor
        .iter()
        .flat_map(|upper| factor.iter().map(move |lower| (upper, lower)));
    let products = pairs.flat_map(|(upper, lower)| {
        let left = upper.iter();
        left.flat_map(move |left| lower.iter().map(move |right| left * right))
    });
    let mut values: Vec<f64> = products.collect();
    let mut dims = [factor.len() * factor.len(), N * N];
    if transposed {
        let [_, columns] = dims;
        let columns = (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns));
        values = columns.copied().collect();
        dims.reverse();
    }
    let matrix = tape.emit.floats(&dims, &values);
    tape.emit.node("Gemm", &[&matrix, tiles], vec![])
}

/// Multiplies matrices of all input positions and flattens the results to rows of length `size`.
fn product(tape: &mut Tape, left: &str, right: &str, size: usize) -> String {
    let products = tape.emit.node("MatMul", &[left, right], vec![]);
    tape.emit.reshape(&products, &[INPUT_POSITIONS, size])
}

/// Reshapes rows of all input positions to matrices.
fn matrices(tape: &mut Tape, rows: &str, height: usize, width: usize) -> String {
    tape.emit.reshape(rows, &[INPUT_POSITIONS, height, width])
}
