//! Dropout masks. A mask is a function of seed and step, so a step draws the same mask in every session and
//! process and in any order.

use crate::Dropout;
use crate::emitter::Float;
use frostline_tensor::{Data, ShapeError, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Separates masks from other uses of the job's seed, because ChaCha streams are independent.
const STREAM: u64 = 3 << 62;

/// Graph input for the factors of a dropout: 0 for a dropped element, otherwise `1 / (1 - ratio)`.
#[derive(Debug, Clone, PartialEq)]
pub struct DropoutMask {
    /// Name of the input.
    pub input: String,
    /// Shape of the input.
    pub dims: Vec<usize>,
    /// Number of batch rows.
    pub(crate) rows: usize,
    pub(crate) float: Float,
    pub(crate) dropout: Dropout,
}

impl DropoutMask {
    /// Draws the mask of step `step` for the rows of the batch after the first `before`. Concatenated masks
    /// of micro-batches are equal to the mask of the entire batch.
    ///
    /// # Errors
    /// Returns [`ShapeError`] if the number of elements overflows.
    pub fn draw(&self, step: u64, before: usize) -> Result<Tensor, ShapeError> {
        let mut random = ChaCha8Rng::seed_from_u64(self.dropout.seed);
        random.set_stream(STREAM | step);
        let count: usize = self.dims.iter().product();
        random.set_word_pos((count / self.rows.max(1)) as u128 * before as u128);
        let below = (self.dropout.ratio * 2_f64.powi(32)) as u32;
        let scale = 1.0 / (1.0 - self.dropout.ratio);
        let factors = (0..count).map(|_| if random.next_u32() < below { 0.0 } else { scale });
        let data = match self.float {
            Float::F32 => Data::F32(factors.map(|factor| factor as f32).collect()),
            Float::F64 => Data::F64(factors.collect()),
        };
        Tensor::new(self.dims.clone(), data)
    }
}
