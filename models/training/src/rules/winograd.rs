//! Conv with a kernel of 3 x 3 and stride 1 in fewer multiplications: Winograd's F(2x2, 3x3), as in Lavin and Gray, Fast Algorithms for
//! Convolutional Neural Networks (2015).
//!
//! A tile of 4 x 4 input positions makes 2 x 2 of the output: `Aᵀ((G w Gᵀ) ⊙ (Bᵀ x B))A`, summed over channels in between. Applied to rows and
//! columns at once, each of the three transforms is one product with a constant matrix of 16 columns or rows, and the sum over channels a batched
//! MatMul of 16 matrices: 16 multiplications instead of 36. All of it is linear, so the backward pass is the same transforms transposed, around
//! two such MatMuls. Activations lie as `[positions, n, c]`, so that tiles are gathered along the first axis.

use super::tiled::{self, Tiled};
use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};
use crate::tiles::Tiles;

/// Places in a tile, as it is seen and as it is made.
const SEEN: usize = 16;
const MADE: usize = 4;
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

struct Winograd {
    input: Value,
    weight: Value,
    tiles: Tiles,
}

pub(super) fn conv(tape: &mut Tape, call: &Call<'_>, tiles: Tiles) -> Result<Value, TrainingError> {
    let (input, weight) = (call.value(0)?, call.value(1)?);
    // A tile sees 16 positions, and makes as many products.
    let channels = input.channels().max(weight.batch());
    let image_bytes = SEEN * tiles.count() * channels * size_of::<f32>();
    tiled::conv(tape, call, image_bytes, |input| Winograd {
        input,
        weight: weight.clone(),
        tiles: tiles.clone(),
    })
}

impl Winograd {
    fn images(&self) -> usize {
        self.input.batch()
    }

    fn filters(&self) -> usize {
        self.weight.batch()
    }

    fn channels(&self) -> usize {
        self.input.channels()
    }

    /// Tiles of all images.
    fn columns(&self) -> usize {
        self.tiles.count() * self.images()
    }

    /// Rows `[n·positions, c]` as `[positions, n·c]`.
    fn by_position(&self, tape: &mut Tape, rows: &str, positions: usize, channels: usize) -> String {
        let images = self.images();
        tape.swap(
            rows,
            [images, positions, channels],
            [positions, images * channels],
        )
    }

    /// The other way round.
    fn by_image(&self, tape: &mut Tape, tensor: &str, positions: usize, channels: usize) -> String {
        let images = self.images();
        tape.swap(
            tensor,
            [positions, images, channels],
            [images * positions, channels],
        )
    }
}

impl Tiled for Winograd {
    const GRADIENT: Form = Form::Taps;

    fn input(&self) -> &Value {
        &self.input
    }

    fn weight(&self) -> &Value {
        &self.weight
    }

    fn outputs(&self) -> usize {
        self.tiles.outputs()
    }

    /// The transformed kernels, `[16, c, m]`.
    fn forward_kernels(&self, tape: &mut Tape) -> String {
        let kernels = self.backward_kernels(tape);
        tape.emit.transpose(&kernels, [0, 2, 1])
    }

    /// The transformed kernels, `[16, m, c]`.
    fn backward_kernels(&self, tape: &mut Tape) -> String {
        let taps = tape.taps(&self.weight);
        let taps = tape
            .emit
            .reshape(&taps, &[TAPS, self.filters() * self.channels()]);
        let kernels = transformed(tape, &KERNEL, false, &taps);
        tape.emit
            .reshape(&kernels, &[SEEN, self.filters(), self.channels()])
    }

    /// The transformed tiles of the input, `[16, tiles·n, c]`.
    fn seen(&self, tape: &mut Tape) -> String {
        let rows = tape.rows(&self.input);
        let (positions, channels) = (self.tiles.inputs(), self.channels());
        let by_position = self.by_position(tape, &rows, positions, channels);
        let gathered = gather(tape, &by_position, &self.tiles.seen(), positions);
        let gathered = tape.emit.reshape(&gathered, &[SEEN, self.columns() * channels]);
        let seen = transformed(tape, &INPUT, false, &gathered);
        tape.emit.reshape(&seen, &[SEEN, self.columns(), channels])
    }

    /// The output as `[n·outputs, m]`.
    fn forward(&self, tape: &mut Tape, seen: &str, kernels: &str) -> String {
        let filters = self.filters();
        let products = tape.emit.node("MatMul", &[seen, kernels], vec![]);
        let products = tape.emit.reshape(&products, &[SEEN, self.columns() * filters]);
        let made = transformed(tape, &OUTPUT, false, &products);
        let tiles = MADE * self.tiles.count();
        let made = tape.emit.reshape(&made, &[tiles, self.images(), filters]);
        let by_position = tape.emit.gather(&made, self.tiles.placed(), 0);
        self.by_image(tape, &by_position, self.tiles.outputs(), filters)
    }

    /// The transformed tiles of the output's gradient, `[16, tiles·n, m]`.
    fn made(&self, tape: &mut Tape, rows: &str) -> String {
        let (positions, filters) = (self.tiles.outputs(), self.filters());
        let by_position = self.by_position(tape, rows, positions, filters);
        let gathered = gather(tape, &by_position, &self.tiles.made(), positions);
        let gathered = tape.emit.reshape(&gathered, &[MADE, self.columns() * filters]);
        let made = transformed(tape, &OUTPUT, true, &gathered);
        tape.emit.reshape(&made, &[SEEN, self.columns(), filters])
    }

    fn weight_gradient(&self, tape: &mut Tape, made: &str, seen: &str) -> String {
        let size = self.filters() * self.channels();
        let flipped = tape.emit.transpose(made, [0, 2, 1]);
        let products = tape.emit.node("MatMul", &[&flipped, seen], vec![]);
        let products = tape.emit.reshape(&products, &[SEEN, size]);
        let gradient = transformed(tape, &KERNEL, true, &products);
        tape.emit.note_product(&gradient, [TAPS, size]);
        gradient
    }

    fn input_gradient(&self, tape: &mut Tape, made: &str, kernels: &str) -> String {
        let (positions, channels) = (self.tiles.inputs(), self.channels());
        let products = tape.emit.node("MatMul", &[made, kernels], vec![]);
        let products = tape.emit.reshape(&products, &[SEEN, self.columns() * channels]);
        let seen = transformed(tape, &INPUT, true, &products);
        let width = self.images() * channels;
        let seen = tape.emit.reshape(&seen, &[SEEN * self.tiles.count(), width]);
        let gathered = tape.emit.gather(&seen, self.tiles.seers(), 0);
        let gathered = tape.emit.reshape(&gathered, &[MADE, positions * width]);
        let sum = tape.emit.sum(&gathered, [0], false);
        let sum = tape.emit.reshape(&sum, &[positions, width]);
        let shares = tape.emit.floats(&[positions, 1], &self.tiles.shares());
        let sum = tape.emit.mul(&sum, &shares);
        self.by_image(tape, &sum, positions, channels)
    }
}

/// Picks rows of a matrix of `length` of them; the index `length` stands for zeros.
fn gather(tape: &mut Tape, matrix: &str, pattern: &[usize], length: usize) -> String {
    let padded = if pattern.contains(&length) {
        let pads = tape.emit.ints([0, 0, 1, 0]);
        tape.emit.node("Pad", &[matrix, &pads], vec![])
    } else {
        matrix.to_owned()
    };
    tape.emit.gather(&padded, pattern.iter().copied(), 0)
}

/// The product of `factor`, applied to rows and columns of a tile at once, and the matrix `tiles`.
fn transformed<const N: usize>(
    tape: &mut Tape,
    factor: &[[f64; N]],
    transposed: bool,
    tiles: &str,
) -> String {
    let mut values = Vec::new();
    for (upper, lower) in factor
        .iter()
        .flat_map(|upper| factor.iter().map(move |lower| (upper, lower)))
    {
        values.extend(
            upper
                .iter()
                .flat_map(|left| lower.iter().map(move |right| left * right)),
        );
    }
    let (rows, columns) = (factor.len() * factor.len(), N * N);
    if transposed {
        let across = |column: usize| values.iter().skip(column).step_by(columns);
        values = (0..columns).flat_map(across).copied().collect();
    }
    let dims = if transposed {
        [columns, rows]
    } else {
        [rows, columns]
    };
    let matrix = tape.emit.floats(&dims, &values);
    tape.emit.node("Gemm", &[&matrix, tiles], vec![])
}
