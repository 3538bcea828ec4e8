use super::Samples;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What an order is for; different purposes get independent orders from one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The samples of a training epoch, counted from 1.
    Epoch(u32),
    /// Choosing validation samples from the class of this number.
    Division(u64),
}

impl Purpose {
    /// ChaCha's streams are independent for every number.
    fn stream(self) -> u64 {
        match self {
            Self::Epoch(epoch) => u64::from(epoch),
            Self::Division(class) => (1 << 63) | class,
        }
    }
}

/// The numbers `0..count`, which is below 2^32, in an order that depends on `seed` and `purpose` only: Fisher-Yates over ChaCha8, whose output is
/// the same in every version and on every machine.
pub fn order(count: usize, seed: u64, purpose: Purpose) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(purpose.stream());
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        order.swap(last, below(&mut random, last + 1));
    }
    order
}

/// As many of the samples as there are, with replacement, so that each class that has any comes as often as any other on average: a class is drawn,
/// then one of its samples.
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
    let draw = |_| {
        let members = classes.get(below(&mut random, classes.len()))?;
        members.get(below(&mut random, members.len())).copied()
    };
    (0..samples.len()).filter_map(draw).collect()
}

/// A number below `bound` by the high half of a product (Lemire); its bias is below 2^-32 for any data set.
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

    /// Guards resumed and compared runs against a silent change of the generator.
    const EXPECTED: [u32; 8] = [7, 0, 2, 1, 4, 3, 5, 6];
}
