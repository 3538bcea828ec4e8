//! Fresh weights for a head: the same for the same seed on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Weights and biases drawn uniformly from ±1/sqrt(fan-in), as PyTorch initialises `Linear` and `Conv2d`.
pub(crate) struct Uniform {
    generator: ChaCha8Rng,
    bound: f32,
}

impl Uniform {
    /// The seed is ChaCha's key as it stands, so the stream depends on no library's way of stretching seeds.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn new(seed: u64, fan_in: usize) -> Self {
        let mut key = [0; 32];
        key.iter_mut()
            .zip(seed.to_le_bytes())
            .for_each(|(byte, seed)| *byte = seed);
        Self {
            generator: ChaCha8Rng::from_seed(key),
            bound: 1.0 / (fan_in.max(1) as f32).sqrt(),
        }
    }

    pub(crate) fn draw(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }

    /// 24 random bits, all that an `f32` between 0 and 1 holds evenly.
    #[allow(clippy::cast_precision_loss)]
    fn next(&mut self) -> f32 {
        const STEP: f32 = 1.0 / (1 << 24) as f32;
        let unit = (self.generator.next_u32() >> 8) as f32 * STEP;
        (2.0 * unit - 1.0) * self.bound
    }
}
