//! Compact index of a job's samples, used to report how the data set changed and to resume without the
//! changed samples.

use super::file::{self, FileError, Tensors};
use crate::pipeline::{FeedPlan, Part};
use crate::whole_file::Create;
use frostline_tensor::{Data, Tensor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Entry of a sample: hashes of 8 bytes of its key, and of version, size, and class or values, and the index
/// of its class, or [`NO_CLASS`].
type SampleEntry = [i64; 3];

/// Class index of samples with values.
const NO_CLASS: i64 = -1;

/// List of a job's samples in the order of its batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SampleIndex {
    note: IndexNote,
    /// Training samples, then validation samples.
    entries: Vec<SampleEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct IndexNote {
    /// Hash over all samples in order and the class names.
    digest: String,
    /// Hash of the class names.
    classes: String,
    /// Number of training samples.
    train: usize,
}

/// Counts of changed samples between two indexes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampleDifference {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// Samples present in both, but with another version, size, class or values.
    changed: usize,
}

impl fmt::Display for SampleDifference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return to.write_str("different division or sample order");
        }
        let [added, removed, changed] = [self.added, self.removed, self.changed];
        write!(to, "{added} samples added, {removed} removed, {changed} changed")
    }
}

/// Samples of a resumed run in their recorded order, so that its steps and validation samples stay the same.
#[derive(Debug, PartialEq)]
pub(crate) struct Rearrangement {
    pub(crate) difference: SampleDifference,
    /// For each recorded sample, the index among the present training and validation samples, and the class
    /// if the sample at this index only holds the place of one that is left out.
    places: [Vec<(usize, Option<u32>)>; 2],
    /// Samples that were removed or changed.
    pub(crate) left_out: Vec<(Part, usize)>,
    /// True if a validation sample was removed, so that earlier predictions refer to an unknown sample.
    pub(crate) lost_validation: bool,
}

impl Rearrangement {
    /// Returns `feed` with the recorded samples in their recorded order. Added samples are dropped.
    pub(crate) fn apply(&self, feed: FeedPlan) -> FeedPlan {
        let [train, validation] = self.places.each_ref().map(|places| {
            let arranged = feed.train.arranged(&feed.validation, places.iter().copied());
            Arc::new(arranged)
        });
        feed.with_samples(train, validation)
    }
}

impl SampleIndex {
    /// Indexes the samples of a job. `classes` are the class names.
    pub(crate) fn from_feed(feed: &FeedPlan, classes: &[String]) -> Self {
        let mut names = Sha256::new();
        for class in classes {
            names.update(class);
            names.update([0]);
        }
        let mut all = names.clone();
        all.update((feed.train.len() as u64).to_le_bytes());
        let mut entries = Vec::with_capacity(feed.train.len() + feed.validation.len());
        for part in [Part::Train, Part::Validation] {
            let of = feed.samples(part);
            for (index, (object, _)) in of.iter().enumerate() {
                let mut rest = Sha256::new();
                rest.update(object.size.to_le_bytes());
                rest.update(object.sample.etag.as_deref().unwrap_or_default());
                rest.update([0]);
                let label = of.label(index);
                let class = label.and_then(|label| classes.get(label as usize));
                rest.update(class.map(String::as_str).unwrap_or_default());
                for value in of.values(index).unwrap_or_default() {
                    rest.update(value.to_le_bytes());
                }
                let [key, rest] =
                    [Sha256::digest(&object.sample.key), rest.finalize()].map(|hash| first(&hash));
                let entry = [key, rest, label.map_or(NO_CLASS, i64::from)];
                entry.iter().for_each(|part| all.update(part.to_le_bytes()));
                entries.push(entry);
            }
        }
        let note = IndexNote {
            digest: hex::encode(all.finalize()),
            classes: hex::encode(names.finalize()),
            train: feed.train.len(),
        };
        Self { note, entries }
    }

    /// Hash over all samples in order and the class names.
    pub(crate) fn digest(&self) -> &str {
        &self.note.digest
    }

    /// Finds the recorded samples (`self`) among those of `now`. Returns `None` if the classes differ.
    pub(crate) fn rearrangement(&self, now: &Self) -> Option<Rearrangement> {
        if self.note.classes != now.note.classes {
            return None;
        }
        let present: HashMap<i64, (usize, i64)> = now
            .entries
            .iter()
            .enumerate()
            .map(|(index, [key, rest, _])| (*key, (index, *rest)))
            .collect();
        let mut found = Rearrangement {
            difference: SampleDifference::default(),
            places: Default::default(),
            left_out: Vec::new(),
            lost_validation: false,
        };
        let [train, validation] = &mut found.places;
        for (index, [key, rest, class]) in self.entries.iter().enumerate() {
            let (part, places) = match index < self.note.train {
                true => (Part::Train, &mut *train),
                false => (Part::Validation, &mut *validation),
            };
            let place = match present.get(key) {
                Some((place, other)) if other == rest => {
                    places.push((*place, None));
                    continue;
                }
                Some((place, _)) => {
                    found.difference.changed += 1;
                    *place
                }
                None => {
                    found.difference.removed += 1;
                    found.lost_validation |= part == Part::Validation;
                    0
                }
            };
            found.left_out.push((part, places.len()));
            places.push((place, u32::try_from(*class).ok()));
        }
        let kept = self.entries.len() - found.difference.removed;
        found.difference.added = now.entries.len().saturating_sub(kept);
        Some(found)
    }

    pub(super) fn write(&self, path: &Path, create: Create) -> io::Result<u64> {
        let values = self.entries.as_flattened().to_vec();
        let tensor = Tensor::i64([self.entries.len(), 3], values).map_err(io::Error::other)?;
        file::write(path, create, &self.note, &[("samples".to_owned(), tensor)])
    }

    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let (note, tensors): (IndexNote, Tensors) = file::read(path)?;
        match tensors.first().map(|(_, tensor)| tensor.data()) {
            Some(Data::I64(values)) => Ok(Self {
                note,
                entries: values.as_chunks().0.to_vec(),
            }),
            _ => Err(FileError::Content("the list of samples is missing".to_owned())),
        }
    }
}

/// Returns the first 8 bytes as an integer.
fn first(hash: &[u8]) -> i64 {
    hash.first_chunk().copied().map_or(0, i64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_client::Samples;
    use frostline_wire::{ObjectInfo, SampleRef};
    use std::ops::Range;

    fn feed(train: &[(&str, &str, u32)], validation: &[(&str, &str, u32)]) -> FeedPlan {
        let sample = |(key, etag, class): &(&str, &str, u32)| {
            let sample = SampleRef {
                key: (*key).to_owned(),
                etag: Some((*etag).to_owned()),
            };
            let size = 7;
            let label = None;
            (
                ObjectInfo {
                    sample,
                    size,
                    label,
                    changed: None,
                },
                *class,
            )
        };
        // Parts share a listing.
        let all: Samples = train.iter().chain(validation).map(sample).collect();
        let part = |range: Range<usize>| {
            let indices = range.map(|index| (index, None));
            Arc::new(all.arranged(&Samples::default(), indices))
        };
        FeedPlan::new(part(0..train.len()), part(train.len()..all.len()), 4)
    }

    fn index_of(feed: &FeedPlan) -> SampleIndex {
        SampleIndex::from_feed(feed, &["cat".to_owned(), "dog".to_owned()])
    }

    fn index(samples: &[(&str, &str, u32)]) -> SampleIndex {
        index_of(&feed(samples, &[]))
    }

    #[test]
    fn sample_changes_are_counted() {
        let then = index(&[("a", "1", 0), ("b", "1", 0), ("c", "1", 1), ("d", "1", 1)]);
        let now = index(&[
            ("b", "2", 0),
            ("c", "1", 0),
            ("d", "1", 1),
            ("e", "1", 1),
            ("f", "1", 1),
        ]);
        let difference = |now: &SampleIndex| then.rearrangement(now).unwrap().difference.to_string();
        assert_eq!(difference(&now), "2 samples added, 1 removed, 2 changed");
        let swapped = index(&[("b", "1", 0), ("a", "1", 0), ("c", "1", 1), ("d", "1", 1)]);
        let moved = index_of(&feed(
            &[("a", "1", 0), ("b", "1", 0), ("c", "1", 1)],
            &[("d", "1", 1)],
        ));
        for other in [&swapped, &moved] {
            assert!(difference(other).contains("sample order"));
            assert_ne!(then.digest(), other.digest());
        }
        assert_ne!(then.digest(), now.digest());
        let classes = SampleIndex::from_feed(&feed(&[("a", "1", 0)], &[]), &["cat".to_owned()]);
        assert_eq!(then.rearrangement(&classes), None);
    }

    #[test]
    fn samples_return_to_their_recorded_places() {
        let then = index_of(&feed(
            &[("a", "1", 0), ("b", "1", 0), ("c", "1", 1)],
            &[("d", "1", 1), ("e", "1", 0)],
        ));
        // `b` is gone, `c` has changed and `x` is new. The other division moves `a` and `d`.
        let now = feed(
            &[("d", "1", 1), ("x", "1", 0), ("e", "1", 0)],
            &[("c", "2", 0), ("a", "1", 0)],
        );
        let found = then.rearrangement(&index_of(&now)).unwrap();
        assert_eq!(
            found.difference.to_string(),
            "1 samples added, 1 removed, 1 changed"
        );
        assert_eq!(found.left_out, [(Part::Train, 1), (Part::Train, 2)]);
        assert!(!found.lost_validation);
        let feed = found.apply(now);
        let keys = |part| -> Vec<String> {
            let samples = feed.samples(part).iter();
            samples.map(|(object, _)| object.sample.key).collect()
        };
        // `d` holds the place of `b`, which is not used.
        assert_eq!(keys(Part::Train), ["a", "d", "c"]);
        assert_eq!(keys(Part::Validation), ["d", "e"]);
        // Balanced sampling draws by the recorded class.
        let labels: Vec<_> = (0..3).map(|index| feed.train.label(index)).collect();
        assert_eq!(labels, [Some(0), Some(0), Some(1)]);
        let fewer = index_of(&self::feed(
            &[("a", "1", 0), ("b", "1", 0), ("c", "1", 1)],
            &[("d", "1", 1)],
        ));
        assert!(then.rearrangement(&fewer).unwrap().lost_validation);
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let written = index(&[("a", "1", 0), ("b", "1", 1)]);
        written
            .write(&path, |path| std::fs::File::create_new(path))
            .unwrap();
        assert_eq!(SampleIndex::read(&path).unwrap(), written);
        std::fs::write(&path, "something").unwrap();
        assert!(SampleIndex::read(&path).is_err());
    }
}
