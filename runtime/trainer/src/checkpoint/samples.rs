//! Compact index of a job's samples, used to report how the data set changed.

use super::file::{self, FileError, Tensors};
use crate::pipeline::{FeedPlan, Part};
use crate::whole_file::Create;
use frostline_tensor::{Data, Tensor};
use sha2::{Digest, Sha256};
use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::path::Path;

/// Two hashes of 8 bytes per sample: the first covers the key, the second covers version, size, part, and
/// class or values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SampleIndex {
    /// Hash over all samples in order and the class names.
    pub(crate) digest: String,
    /// Sorted by the hash of the key.
    samples: Vec<[i64; 2]>,
}

/// Counts of changed samples between two indexes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    added: usize,
    removed: usize,
    /// Samples present in both, but with another version, size, part, class or values.
    changed: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            added,
            removed,
            changed,
        } = self;
        if *self == Self::default() {
            return to.write_str("the order of the samples changed");
        }
        write!(to, "{added} samples added, {removed} removed, {changed} changed")
    }
}

impl SampleIndex {
    /// Indexes the samples of a job. `classes` are the class names.
    pub(crate) fn from_feed(feed: &FeedPlan, classes: &[String]) -> Self {
        let mut all = Sha256::new();
        let mut samples = Vec::with_capacity(feed.train.len() + feed.validation.len());
        for part in [Part::Train, Part::Validation] {
            let of = feed.samples(part);
            for (index, (object, _)) in of.iter().enumerate() {
                let mut rest = Sha256::new();
                rest.update([u8::from(part == Part::Validation)]);
                rest.update(object.size.to_le_bytes());
                rest.update(object.sample.etag.as_deref().unwrap_or_default());
                rest.update([0]);
                let class = of.label(index).and_then(|label| classes.get(label as usize));
                rest.update(class.map(String::as_str).unwrap_or_default());
                for value in of.values(index).unwrap_or_default() {
                    rest.update(value.to_le_bytes());
                }
                let sample = [Sha256::digest(&object.sample.key), rest.finalize()].map(|hash| first(&hash));
                sample.iter().for_each(|part| all.update(part.to_le_bytes()));
                samples.push(sample);
            }
        }
        for class in classes {
            all.update(class);
            all.update([0]);
        }
        samples.sort_unstable();
        Self {
            digest: hex::encode(all.finalize()),
            samples,
        }
    }

    /// Compares the recorded samples (`self`) with those of `now`.
    pub(crate) fn difference_to(&self, now: &Self) -> Difference {
        let mut difference = Difference::default();
        let (mut then, mut now) = (self.samples.iter().peekable(), now.samples.iter().peekable());
        loop {
            let order = match (then.peek(), now.peek()) {
                (Some([then, _]), Some([now, _])) => then.cmp(now),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return difference,
            };
            match order {
                Ordering::Less => {
                    difference.removed += 1;
                    then.next();
                }
                Ordering::Greater => {
                    difference.added += 1;
                    now.next();
                }
                Ordering::Equal => difference.changed += usize::from(then.next() != now.next()),
            }
        }
    }

    pub(super) fn write(&self, path: &Path, create: Create) -> io::Result<u64> {
        let values = self.samples.as_flattened().to_vec();
        let tensor = Tensor::i64([self.samples.len(), 2], values).map_err(io::Error::other)?;
        file::write(path, create, &self.digest, &[("samples".to_owned(), tensor)])
    }

    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let (digest, tensors): (String, Tensors) = file::read(path)?;
        match tensors.first().map(|(_, tensor)| tensor.data()) {
            Some(Data::I64(values)) => Ok(Self {
                digest,
                samples: values.as_chunks().0.to_vec(),
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
    use frostline_wire::{ObjectInfo, SampleRef};
    use std::sync::Arc;

    fn index(samples: &[(&str, &str, u32)]) -> SampleIndex {
        let sample = |(key, etag, class): &(&str, &str, u32)| {
            let sample = SampleRef {
                key: (*key).to_owned(),
                etag: Some((*etag).to_owned()),
            };
            let (size, label) = (7, None);
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
        let train = Arc::new(samples.iter().map(sample).collect());
        let feed = FeedPlan::new(train, Arc::default(), 4);
        SampleIndex::from_feed(&feed, &["cat".to_owned(), "dog".to_owned()])
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
        let text = then.difference_to(&now).to_string();
        assert_eq!(text, "2 samples added, 1 removed, 2 changed");
        assert_ne!(then.digest, now.digest);
        let swapped = index(&[("b", "1", 0), ("a", "1", 0), ("c", "1", 1), ("d", "1", 1)]);
        assert!(
            then.difference_to(&swapped)
                .to_string()
                .contains("order of the samples")
        );
        assert_ne!(then.digest, swapped.digest);
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
