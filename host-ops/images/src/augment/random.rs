use frostline_tensor::View;
use sha2::{Digest, Sha256};

/// Domain string. Must change whenever the draws change, so that old and new draws are not confused.
const DEFINITION: &[u8] = b"frostline augmentation 1\0";

/// Random numbers for a transform, generated from SHA-256 hashes of the view, the transform's name, the
/// sample's key and a counter. Numbers are identical on all machines and in all versions. Other transforms do
/// not affect them.
pub(super) struct Random {
    beginning: Sha256,
    counter: u64,
    words: std::vec::IntoIter<u64>,
}

impl Random {
    /// Returns the generator for a transform and the sample `key`.
    pub(super) fn new(view: &View, key: &str, transform: &str) -> Self {
        let mut beginning = Sha256::new();
        beginning.update(DEFINITION);
        beginning.update(view.seed.to_le_bytes());
        beginning.update(view.number.to_le_bytes());
        beginning.update(transform.as_bytes());
        beginning.update([0]);
        beginning.update(key.as_bytes());
        Self {
            beginning,
            counter: 0,
            words: Vec::new().into_iter(),
        }
    }

    /// Returns 64 uniform bits.
    fn word(&mut self) -> u64 {
        if self.words.len() == 0 {
            let block = self.beginning.clone().chain_update(self.counter.to_le_bytes());
            let bytes = block.finalize();
            let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
            self.counter += 1;
            self.words = words.collect::<Vec<_>>().into_iter();
        }
        self.words.next().unwrap_or_default()
    }

    /// Returns a uniform number in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f64 {
        // `f64` has 53 significant bits.
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a uniform number between the two bounds.
    pub(super) fn between(&mut self, [least, most]: [f64; 2]) -> f64 {
        least + self.unit() * (most - least)
    }

    /// Returns an integer less than `end`, or 0 if `end` is 0. It is uniform up to a relative error of 2^-32.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u32
    }

    /// Returns true with the given probability.
    pub(super) fn happens(&mut self, likely: f64) -> bool {
        self.unit() < likely
    }
}
