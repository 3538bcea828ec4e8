//! Purpose of samples (training, validation or test), derived from folder and shard names.

use frostline_wire::listing_order;
use std::fmt;

/// Purpose of a subset of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Samples to train with.
    Train,
    /// Samples to select the best epoch with.
    Validation,
    /// Samples to evaluate the tuned model with, once.
    Test,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// Returns the canonical folder name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }

    /// Derives the part from an object's key. Objects in shards are assigned by shard name, other objects by
    /// first folder. Folder names are `train` or `training`, `val`, `valid` or `validation`, `test` or
    /// `testing`. Returns `None` for files directly under the root.
    pub fn of_key(key: &str) -> Option<Self> {
        match listing_order(key) {
            (shard, name) if !name.is_empty() => Self::of_shard(shard),
            _ => Self::from_word(key.split_once('/')?.0),
        }
    }

    /// Derives the part from the first matching word in a shard's key (`imagenet-train-000.tar`,
    /// `val/000.tar`).
    pub(super) fn of_shard(shard: &str) -> Option<Self> {
        let words = shard.split(|letter: char| !letter.is_alphanumeric());
        words
            .map(|word| word.trim_end_matches(|letter: char| letter.is_ascii_digit()))
            .find_map(Self::from_word)
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        match word {
            "train" | "training" => Some(Self::Train),
            "val" | "valid" | "validation" => Some(Self::Validation),
            "test" | "testing" => Some(Self::Test),
            _ => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_key_names_the_part() {
        for (shard, expected) in [
            ("train-000.tar", Some(Part::Train)),
            ("imagenet_train000.tar", Some(Part::Train)),
            ("a/val/000.tar", Some(Part::Validation)),
            ("validation.tar", Some(Part::Validation)),
            ("cifar10-test-0.tar", Some(Part::Test)),
            ("photos-000.tar", None),
            ("trains.tar", None),
            ("retrain.tar", None),
        ] {
            assert_eq!(Part::of_shard(shard), expected, "{shard}");
            assert_eq!(Part::of_key(&format!("{shard}//1.jpg")), expected, "{shard}");
        }
        for (key, expected) in [
            ("valid/cat/1.jpg", Some(Part::Validation)),
            ("test/1.jpg", Some(Part::Test)),
            ("cat/train/1.jpg", None),
            ("train.jpg", None),
        ] {
            assert_eq!(Part::of_key(key), expected, "{key}");
        }
    }
}
