use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The longest input made, in bytes: more finds nothing more.
const LONGEST: usize = 1 << 16;
/// Most changes made to one input.
const CHANGES: usize = 6;
/// Bytes at the edges of ranges, of variable-length integers, and of texts.
const EDGES: [u8; 12] = [0, 1, 2, 0x0a, b'"', b'.', b'/', 0x7f, 0x80, 0xc0, 0xfe, 0xff];

/// Changes inputs, the same way for the same seed: what a machine without libFuzzer runs. It knows nothing of what the changes reach.
#[derive(Debug)]
pub struct Mutator {
    random: ChaCha8Rng,
}

impl Mutator {
    /// One for each run.
    pub fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// One of `seeds`, changed in some places.
    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.pick(seeds);
        for _ in 0..=self.below(CHANGES) {
            self.change(&mut input, seeds);
        }
        input.truncate(LONGEST);
        input
    }

    fn pick(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let place = self.below(seeds.len());
        seeds.get(place).cloned().unwrap_or_default()
    }

    /// A number below `bound`; 0 when there is none.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.next_u64()).map_or(0, |number| number.checked_rem(bound).unwrap_or(0))
    }

    /// A range within `length` bytes, mostly short.
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
