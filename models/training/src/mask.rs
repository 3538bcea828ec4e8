//! Masks of dropout: a function of seed and step, so that a step draws the same in whatever session, process or order it runs.

use crate::Dropout;
use crate::emitter::Float;
use frostline_tensor::{Data, ShapeError, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Keeps masks apart from whatever else a job's seed is for: ChaCha's streams are independent.
const STREAM: u64 = 3 << 62;

/// An input of a step's graph that takes what a dropout leaves: 0 for a dropped element, else `1 / (1 - ratio)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mask {
    /// The input's name.
    pub input: String,
    /// Its shape.
    pub dims: Vec<usize>,
    /// Rows that it is for.
    pub(crate) rows: usize,
    pub(crate) float: Float,
    pub(crate) dropout: Dropout,
}

impl Mask {
    /// The mask of the step of this number, for the rows of its batch after the first `before`: micro-batches have together the mask of their
    /// batch.
    ///
    /// # Errors
    /// [`ShapeError`] where the shape has more elements than can be counted.
    pub fn draw(&self, step: u64, before: usize) -> Result<Tensor, ShapeError> {
        let mut random = ChaCha8Rng::seed_from_u64(self.dropout.seed);
        random.set_stream(STREAM | step);
        let count: usize = self.dims.iter().product();
        random.set_word_pos((count / self.rows.max(1)) as u128 * before as u128);
        let below = (self.dropout.ratio * 2_f64.powi(32)) as u32;
        let scale = 1.0 / (1.0 - self.dropout.ratio);
        let mut element = || if random.next_u32() < below { 0.0 } else { scale };
        let data = match self.float {
            Float::F32 => Data::F32((0..count).map(|_| element() as f32).collect()),
            Float::F64 => Data::F64((0..count).map(|_| element()).collect()),
        };
        Tensor::new(self.dims.clone(), data)
    }
}
