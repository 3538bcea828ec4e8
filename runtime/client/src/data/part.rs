//! Purpose of samples (training, validation or test), derived from folder and shard names.

use frostline_wire::listing_order;
use std::collections::BTreeMap;

/// Purpose of a subset of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Derives the part from the first matching word in a shard's key (`imagenet-train-000.tar`,
    /// `val/000.tar`).
    pub(super) fn of_shard(shard: &str) -> Option<Self> {
        words(shard).find_map(|word| Self::from_word(without_number(word)))
    }

    /// Converts a word in any case, as in the data sets of Hugging Face: `train` or `training`; `val`,
    /// `valid`, `validation` or `dev`; `test`, `testing`, `eval` or `evaluation`.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "val" | "valid" | "validation" | "dev" => Some(Self::Validation),
            "test" | "testing" | "eval" | "evaluation" => Some(Self::Test),
            _ => None,
        }
    }
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|letter: char| !letter.is_alphanumeric())
}

/// Removes a number at the end, such as the year in `train2017`.
fn without_number(word: &str) -> &str {
    word.trim_end_matches(|letter: char| letter.is_ascii_digit())
}

/// Parts of the folders directly under a data root. Empty if these folders are classes.
#[derive(Debug, Clone, Default)]
pub(super) struct PartFolders<'a> {
    parts: BTreeMap<&'a str, Part>,
    /// A folder named like a part with a folder next to it, if it may be a class as well.
    pub(super) ambiguous: Option<[&'a str; 2]>,
}

impl<'a> PartFolders<'a> {
    /// Finds the parts among the folders of the samples `keys`, without a labels table. A folder without
    /// class folders is a class if there are other classes. If only one part is found next to other folders,
    /// the result is ambiguous.
    pub(super) fn of_samples(keys: impl Iterator<Item = &'a str>) -> Self {
        let mut folders: BTreeMap<&str, bool> = BTreeMap::new();
        for (folder, rest) in keys.filter_map(|key| key.split_once('/')) {
            *folders.entry(folder).or_default() |= rest.contains('/');
        }
        let parts = named_parts(folders.keys().copied());
        let has_classes = parts.keys().any(|folder| folders.get(folder) == Some(&true));
        let Some(other) = folders.keys().find(|folder| !parts.contains_key(*folder)) else {
            return Self {
                parts,
                ambiguous: None,
            };
        };
        if !has_classes {
            return Self::default();
        }
        let ambiguous = parts.keys().next().filter(|_| !has_several(&parts));
        Self {
            ambiguous: ambiguous.map(|folder| [*folder, *other]),
            parts,
        }
    }

    /// Finds the parts among the folders of the samples `keys`. Samples in `listed` have a label in a table,
    /// so none of them are left out because of a single folder that is named like a part.
    pub(super) fn of_table(
        keys: impl Iterator<Item = &'a str>,
        listed: impl Iterator<Item = &'a str>,
    ) -> Self {
        let parts = named_parts(keys.filter_map(top_folder));
        let mut of_listed = BTreeMap::new();
        let mut others = false;
        for folder in listed.map(top_folder) {
            match folder.and_then(|folder| parts.get_key_value(folder)) {
                Some((folder, part)) => drop(of_listed.insert(*folder, *part)),
                None => others = true,
            }
        }
        if others && !has_several(&of_listed) {
            return Self::default();
        }
        Self {
            parts,
            ambiguous: None,
        }
    }

    /// Returns the part of an object. Samples in shards are assigned by shard name, other objects by the
    /// first folder.
    pub(super) fn part(&self, key: &str) -> Option<Part> {
        match listing_order(key) {
            (shard, name) if !name.is_empty() => Part::of_shard(shard),
            _ => self.parts.get(key.split_once('/')?.0).copied(),
        }
    }

    /// Returns the part and the class of the folder that contains the object. Shards are not folders.
    pub(super) fn class<'k>(&self, key: &'k str) -> Option<(Option<Part>, &'k str)> {
        let (key, "") = listing_order(key) else {
            return None;
        };
        let (first, rest) = key.split_once('/')?;
        match self.parts.get(first) {
            Some(part) => Some((Some(*part), rest.split_once('/')?.0)),
            None => Some((None, first)),
        }
    }
}

/// Returns the folders that are named after a part. Other words in a name (`seg_train`) only count if the
/// same words name another part (`seg_test`).
fn named_parts<'a>(folders: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Part> {
    let mut frames: BTreeMap<Vec<String>, BTreeMap<&str, Part>> = BTreeMap::new();
    for folder in folders {
        let mut frame: Vec<String> = words(folder).map(str::to_lowercase).collect();
        for word in &mut frame {
            if let Some(part) = Part::from_word(without_number(word)) {
                word.clear();
                frames.entry(frame).or_default().insert(folder, part);
                break;
            }
        }
    }
    frames.retain(|frame, parts| frame.len() == 1 || has_several(parts));
    frames.into_values().flatten().collect()
}

fn top_folder(key: &str) -> Option<&str> {
    key.split_once('/').map(|(folder, _)| folder)
}

/// Returns true if there are training samples and another part.
fn has_several(parts: &BTreeMap<&str, Part>) -> bool {
    let trains = parts.values().any(|part| *part == Part::Train);
    trains && parts.values().any(|part| *part != Part::Train)
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
            ("Dev-000.tar", Some(Part::Validation)),
            ("cifar10-test-0.tar", Some(Part::Test)),
            ("photos-000.tar", None),
            ("trains.tar", None),
            ("retrain.tar", None),
        ] {
            assert_eq!(Part::of_shard(shard), expected, "{shard}");
            let key = format!("{shard}//1.jpg");
            assert_eq!(PartFolders::default().part(&key), expected, "{shard}");
        }
    }

    fn found(folders: &[&str]) -> Vec<(String, Part)> {
        let keys: Vec<String> = folders.iter().map(|folder| format!("{folder}/a/1.jpg")).collect();
        let found = PartFolders::of_samples(keys.iter().map(String::as_str));
        assert_eq!(found.ambiguous, None, "{folders:?}");
        let parts = found.parts.into_iter();
        parts.map(|(folder, part)| (folder.to_owned(), part)).collect()
    }

    #[test]
    fn parts_are_named_in_every_case_with_years_and_with_common_words() {
        use Part::{Test, Validation};
        for (train, other, part) in [
            ("Train", "Test", Test),
            ("Training", "Testing", Test),
            ("TRAIN", "VAL", Validation),
            ("train", "dev", Validation),
            ("train2017", "val2017", Validation),
            ("seg_train", "seg_test", Test),
            ("Training Data", "Test Data", Test),
            ("imagenet-train", "imagenet-val", Validation),
        ] {
            let mut expected = vec![(train.to_owned(), Part::Train), (other.to_owned(), part)];
            expected.sort();
            assert_eq!(found(&[train, other]), expected);
            assert_eq!(found(&[train, other, "unlabeled"]), expected);
        }
    }

    #[test]
    fn classes_that_contain_the_word_of_a_part_are_classes() {
        for folders in [
            ["bullet_train", "car"].as_slice(),
            &["bullet_train", "test_tube"],
            &["trains", "cars"],
            &["cat", "dog"],
        ] {
            assert_eq!(found(folders), []);
        }
    }

    #[test]
    fn a_class_called_train_is_a_class_unless_it_has_class_folders() {
        let keys = ["bus/1.jpg", "car/1.jpg", "train/1.jpg"];
        let found = PartFolders::of_samples(keys.into_iter());
        assert!(found.parts.is_empty() && found.ambiguous.is_none());
        assert_eq!(found.class("train/1.jpg"), Some((None, "train")));
        let keys = ["bus/1.jpg", "train/steam/1.jpg"];
        let found = PartFolders::of_samples(keys.into_iter());
        assert_eq!(found.ambiguous, Some(["train", "bus"]));
        // Without a class folder, files in parts have no class.
        let found = PartFolders::of_samples(["train/1.jpg", "test/2.jpg"].into_iter());
        assert_eq!(
            (found.class("train/1.jpg"), found.part("test/2.jpg")),
            (None, Some(Part::Test))
        );
    }

    #[test]
    fn a_table_names_its_images_wherever_they_are() {
        let keys = ["train/1.jpg", "bus/2.jpg", "test/3.jpg"];
        let by = |listed: &[&'static str]| PartFolders::of_table(keys.into_iter(), listed.iter().copied());
        assert_eq!(by(&["train/1.jpg", "bus/2.jpg"]).part("train/1.jpg"), None);
        assert_eq!(by(&["train/1.jpg"]).part("test/3.jpg"), Some(Part::Test));
        assert_eq!(by(&keys).part("train/1.jpg"), Some(Part::Train));
    }
}
