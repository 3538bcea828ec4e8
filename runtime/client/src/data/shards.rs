//! Samples inside tar shards: their class and their part of the data.

use super::listing::Listed;
use frostline_wire::listing_order;

pub(super) const TRAIN: &str = "train";

pub(super) const VALIDATION: &str = "validation";

pub(super) const TEST: &str = "test";

/// What a shard says of a sample.
pub(crate) struct ShardSample<'a> {
    /// What it is there for, as the shard's key says.
    pub(crate) part: Option<&'static str>,
    /// Its class.
    pub(crate) label: &'a str,
}

impl<'a> ShardSample<'a> {
    /// None for an object of its own, and for a sample without a class.
    pub(crate) fn from_listed(object: Listed<'a>) -> Option<Self> {
        let (shard, name) = listing_order(object.key);
        let label = object.label.filter(|_| !name.is_empty())?;
        Some(Self {
            part: part(shard),
            label,
        })
    }
}

/// The part that the first telling word of a shard's key names: `imagenet-train-000.tar`, `val/000.tar`.
pub(super) fn part(shard: &str) -> Option<&'static str> {
    let words = shard.split(|letter: char| !letter.is_alphanumeric());
    words
        .map(|word| word.trim_end_matches(|letter: char| letter.is_ascii_digit()))
        .find_map(|word| match word {
            "train" | "training" => Some(TRAIN),
            "val" | "valid" | "validation" => Some(VALIDATION),
            "test" | "testing" => Some(TEST),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_key_names_the_part() {
        for (shard, expected) in [
            ("train-000.tar", Some(TRAIN)),
            ("imagenet_train000.tar", Some(TRAIN)),
            ("a/val/000.tar", Some(VALIDATION)),
            ("validation.tar", Some(VALIDATION)),
            ("cifar10-test-0.tar", Some(TEST)),
            ("photos-000.tar", None),
            ("trains.tar", None),
            ("retrain.tar", None),
        ] {
            assert_eq!(part(shard), expected, "{shard}");
        }
    }
}
