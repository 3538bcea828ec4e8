use super::Samples;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Purpose of a random order. Each purpose has an independent order for the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Samples of a training epoch, counted from 1.
    Epoch(u32),
    /// Selection of validation samples from the class with this index.
    Division(u64),
}

impl Purpose {
    /// Number of the ChaCha stream. Streams are independent.
    fn stream(self) -> u64 {
        match self {
            Self::Epoch(epoch) => u64::from(epoch),
            Self::Division(class) => (1 << 63) | class,
        }
    }
}

/// Returns a permutation of `0..count` that depends only on `seed` and `purpose`. `count` must be less than
/// 2^32. The algorithm is Fisher-Yates with ChaCha8, which produces the same output in every version and on
/// every machine.
pub fn order(count: usize, seed: u64, purpose: Purpose) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(purpose.stream());
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        order.swap(last, below(&mut random, last + 1));
    }
    order
}

/// Draws `samples.len()` indices with replacement, so that all non-empty classes are equally frequent on
/// average. Each draw selects a class, then a sample of the class.
pub fn balanced_order(samples: &Samples, seed: u64, purpose: Purpose) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(purpose.stream());
    let mut classes: Vec<Vec<u32>> = Vec::new();
    for index in 0..samples.len() {
        let class = samples.label(index).unwrap_or_default() as usize;
        if classes.len() <= class {
            classes.resize(class + 1, Vec::new());
        }
        if let Some(members) = classes.get_mut(class) {
            members.push(index as u32);
        }
    }
    classes.retain(|members| !members.is_empty());
    (0..samples.len())
        .filter_map(|_| {
            let members = classes.get(below(&mut random, classes.len()))?;
            members.get(below(&mut random, members.len())).copied()
        })
        .collect()
}

/// Returns a random number less than `bound`, using Lemire's multiplication method. The bias is less than
/// 2^-32 for any data set.
fn below(random: &mut impl Rng, bound: usize) -> usize {
    let product = u128::from(random.next_u64()) * bound as u128;
    (product >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::{ObjectInfo, SampleRef};

    #[test]
    fn an_order_has_every_number_once_and_is_repeatable() {
        let first = order(1000, 7, Purpose::Epoch(1));
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u32>>());
        assert_eq!(order(1000, 7, Purpose::Epoch(1)), first);
        for other in [
            order(1000, 7, Purpose::Epoch(2)),
            order(1000, 8, Purpose::Epoch(1)),
        ] {
            assert_ne!(other, first);
        }
        assert_ne!(order(1000, 7, Purpose::Division(1)), first);
        assert_eq!(order(0, 7, Purpose::Epoch(1)), Vec::<u32>::new());
    }

    #[test]
    fn classes_come_alike_where_they_are_balanced() {
        let sample = |index: u32| {
            let info = ObjectInfo {
                sample: SampleRef::new(index.to_string()),
                size: 1,
                label: None,
                changed: None,
            };
            (info, [0, 0, 0, 0, 0, 0, 0, 0, 0, 2][(index % 10) as usize])
        };
        let samples: Samples = (0..1000).map(sample).collect();
        let drawn = balanced_order(&samples, 3, Purpose::Epoch(1));
        assert_eq!(drawn.len(), 1000);
        let rare = drawn.iter().filter(|index| **index % 10 == 9).count();
        assert!((430..570).contains(&rare), "{rare}");
        assert_eq!(drawn, balanced_order(&samples, 3, Purpose::Epoch(1)));
        assert_ne!(drawn, balanced_order(&samples, 3, Purpose::Epoch(2)));
    }

    #[test]
    fn an_order_stays_what_it_was() {
        assert_eq!(order(8, 0, Purpose::Epoch(1)), EXPECTED);
    }

    /// Detects changes of the generator, which would affect resumed runs and comparisons.
    const EXPECTED: [u32; 8] = [7, 0, 2, 1, 4, 3, 5, 6];
}
