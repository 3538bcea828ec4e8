//! What samples are there for, by the folder or shard that they lie in.

use frostline_wire::listing_order;
use std::fmt;

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// To train with.
    Train,
    /// To choose the best epoch by.
    Validation,
    /// To measure the tuned model with, once.
    Test,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// As folders are called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }

    /// The part of an object: that of its shard, else of the first of several folders, which is called `train` or `training`, `val`,
    /// `valid` or `validation`, `test` or `testing`.
    pub fn of_key(key: &str) -> Option<Self> {
        match listing_order(key) {
            (shard, name) if !name.is_empty() => Self::of_shard(shard),
            _ => Self::from_word(key.split_once('/')?.0),
        }
    }

    /// The part that the first telling word of a shard's key names: `imagenet-train-000.tar`, `val/000.tar`.
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
