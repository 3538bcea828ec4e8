use frostline_tensor::View;
use sha2::{Digest, Sha256};

/// Changes with what a draw means, so that nobody takes one for another.
const DEFINITION: &[u8] = b"frostline augmentation 1\0";

/// Random numbers for one transform of one sample in one view: SHA-256 of these and of a counter, so that they are the same on every machine
/// and in every version, and other transforms beside it change nothing.
pub(super) struct Random {
    beginning: Sha256,
    counter: u64,
    words: std::vec::IntoIter<u64>,
}

impl Random {
    /// For the transform called `transform`, of the sample `key`.
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

    /// 64 even bits.
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

    /// Evenly from `[0, 1)`.
    pub(super) fn unit(&mut self) -> f64 {
        // As many bits as a double holds.
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly between the two.
    pub(super) fn between(&mut self, [least, most]: [f64; 2]) -> f64 {
        least + self.unit() * (most - least)
    }

    /// A whole number below `end`, all alike but for one part in 2^32; 0 where that is 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u32
    }

    /// Whether something happens that is so likely.
    pub(super) fn happens(&mut self, likely: f64) -> bool {
        self.unit() < likely
    }
}
