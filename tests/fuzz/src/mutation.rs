use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Maximum input size in bytes. Larger inputs find nothing new.
const MAX_BYTES: usize = 1 << 16;
/// Maximum number of changes per input.
const MAX_CHANGES: usize = 6;
/// Special characters and bytes at the limits of integer encodings.
const EDGES: [u8; 12] = [0, 1, 2, 0x0a, b'"', b'.', b'/', 0x7f, 0x80, 0xc0, 0xfe, 0xff];

/// Mutates inputs reproducibly for a given seed. Replaces libFuzzer if it is missing, without coverage
/// feedback.
#[derive(Debug)]
pub struct Mutator {
    random: ChaCha8Rng,
}

impl Mutator {
    /// Creates a mutator. Equal seeds produce equal inputs.
    pub fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Picks one of `seeds` and changes it.
    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.pick(seeds);
        for _ in 0..=self.below(MAX_CHANGES) {
            self.change(&mut input, seeds);
        }
        input.truncate(MAX_BYTES);
        input
    }

    fn pick(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let place = self.below(seeds.len());
        seeds.get(place).cloned().unwrap_or_default()
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.next_u64()).map_or(0, |number| number.checked_rem(bound).unwrap_or(0))
    }

    /// Returns a mostly short range within `length` bytes.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length);
        let most = if self.below(4) == 0 { length - start } else { 8 };
        let end = start + self.below(most.min(length - start) + 1);
        start..end
    }

    fn edge(&mut self) -> u8 {
        let place = self.below(EDGES.len());
        EDGES.get(place).copied().unwrap_or_default()
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let range = self.range(input.len());
        match self.below(7) {
            0 => {
                let bit = 1 << self.below(8);
                input
                    .iter_mut()
                    .skip(range.start)
                    .take(1)
                    .for_each(|byte| *byte ^= bit);
            }
            1 => {
                let edge = self.edge();
                input
                    .iter_mut()
                    .skip(range.start)
                    .take(1)
                    .for_each(|byte| *byte = edge);
            }
            2 => drop(input.drain(range)),
            3 => {
                let again: Vec<u8> = input.get(range.clone()).unwrap_or_default().to_vec();
                input.splice(range.end..range.end, again).for_each(drop);
            }
            4 => {
                let bytes: Vec<u8> = (0..=self.below(8)).map(|_| self.edge()).collect();
                input.splice(range.start..range.start, bytes).for_each(drop);
            }
            5 => {
                let other = self.pick(seeds);
                let part = self.range(other.len());
                input
                    .splice(range, other.get(part).unwrap_or_default().iter().copied())
                    .for_each(drop);
            }
            _ => input.truncate(range.start.max(1)),
        }
    }
}
