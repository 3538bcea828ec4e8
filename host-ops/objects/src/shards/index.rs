//! Index of the samples in a shard.

use super::archive::{ArchiveError, ArchiveReader, Member};
use crate::{ObjectError, key};
use bytes::Bytes;
use frostline_tensor::{SkippedNames, is_hidden_name, is_image_name};
use futures::Stream;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Maximum memory of an index in bytes: some 150,000 samples with usual names. WebDataset recommends shards
/// of 1 GB, some ten thousand images, and an untrusted archive of empty files must not use all memory of the
/// host.
pub(crate) const LARGEST_INDEX: usize = 16 << 20;

/// Memory per entry in bytes, excluding the name.
const ENTRY: usize = 64;

/// Maximum size of a label in bytes. Class names have a word or two.
const LONGEST_LABEL: u64 = 256;

/// A sample in a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardSample {
    pub(crate) name: String,
    /// Content of the `.cls` file.
    pub(crate) label: Option<Arc<str>>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Shard samples in ascending order by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Index {
    entries: Vec<ShardSample>,
    odd: SkippedNames,
    bytes: usize,
}

impl Index {
    /// Reads the archive in `pieces` through.
    pub(crate) async fn read(
        pieces: impl Stream<Item = Result<Bytes, ObjectError>> + Unpin,
    ) -> Result<Self, ArchiveError> {
        let mut reader = ArchiveReader::new(pieces);
        let mut files = IndexedFiles::default();
        while let Some(member) = reader.next().await? {
            if files.add(&member)? && member.size <= LONGEST_LABEL {
                let content = reader.content(member.size).await?;
                files.add_label(&member, &content)?;
            }
        }
        let labels = files.labels;
        let entries = files
            .images
            .into_iter()
            .map(|(name, (offset, size))| ShardSample {
                label: labels.get(stem(&name)).cloned(),
                name,
                offset,
                size,
            });
        Ok(Self {
            entries: entries.collect(),
            odd: files.odd,
            bytes: files.bytes,
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ShardSample> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.name.as_str().cmp(name))
            .ok()?;
        self.entries.get(at)
    }

    /// Returns the samples with names greater than `name`.
    pub(crate) fn after(&self, name: &str) -> &[ShardSample] {
        let first = self.entries.partition_point(|entry| entry.name.as_str() <= name);
        self.entries.get(first..).unwrap_or_default()
    }

    /// Returns the images that were skipped because their names are not valid keys.
    pub(crate) fn odd(&self) -> &SkippedNames {
        &self.odd
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[derive(Debug, Default)]
struct IndexedFiles {
    /// Offset and size by name. The last file with a name wins, like in tar.
    images: BTreeMap<String, (u64, u64)>,
    /// Labels by stem.
    labels: HashMap<String, Arc<str>>,
    classes: HashSet<Arc<str>>,
    odd: SkippedNames,
    bytes: usize,
}

impl IndexedFiles {
    fn count(&mut self, bytes: usize) -> Result<(), ArchiveError> {
        self.bytes += bytes + ENTRY;
        if self.bytes > LARGEST_INDEX {
            return Err(ArchiveError::TooMany { limit: LARGEST_INDEX });
        }
        Ok(())
    }

    /// Adds a file. Returns true if it contains a label.
    fn add(&mut self, member: &Member) -> Result<bool, ArchiveError> {
        let Some(name) = plain(&member.name) else {
            let name = String::from_utf8_lossy(&member.name);
            let is_hidden = name.rsplit('/').next().is_some_and(|file| file.starts_with('.'));
            if is_image_name(&name) && !is_hidden {
                self.odd.add(&name);
            }
            return Ok(false);
        };
        // macOS stores attributes of `1.jpg` in `._1.jpg`.
        if is_hidden_name(name) {
            return Ok(false);
        }
        if is_image_name(name) {
            self.count(name.len())?;
            self.images.insert(name.to_owned(), (member.offset, member.size));
        }
        Ok(label_of(name).is_some())
    }

    fn add_label(&mut self, member: &Member, content: &[u8]) -> Result<(), ArchiveError> {
        let stem = plain(&member.name).and_then(label_of);
        let label = std::str::from_utf8(content).ok().map(str::trim);
        let (Some(stem), Some(label)) = (stem, label) else {
            return Ok(());
        };
        if label.is_empty() || label.chars().any(char::is_control) {
            return Ok(());
        }
        let label = without_zeros(label);
        let class = match self.classes.get(label) {
            Some(class) => Arc::clone(class),
            None => {
                self.count(label.len())?;
                let class: Arc<str> = label.into();
                self.classes.insert(Arc::clone(&class));
                class
            }
        };
        self.count(stem.len())?;
        self.labels.insert(stem.to_owned(), class);
        Ok(())
    }
}

/// Returns a member's name as part of a key, or `None` if it is invalid. `tar -c .` writes `./` before every
/// name.
fn plain(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let name = name.strip_prefix("./").unwrap_or(name);
    key::checked(name).is_ok().then_some(name)
}

/// Returns the common part of all file names in a sample. It ends before the first dot in the last segment,
/// like in WebDataset.
fn stem(name: &str) -> &str {
    let folder = name.rfind('/').map_or(0, |slash| slash + 1);
    let file = name.get(folder..).unwrap_or_default();
    let length = folder + file.find('.').unwrap_or(file.len());
    name.get(..length).unwrap_or_default()
}

/// Removes leading zeros from a number, as WebDataset reads `.cls` files as integers.
fn without_zeros(label: &str) -> &str {
    if !label.bytes().all(|byte| byte.is_ascii_digit()) {
        return label;
    }
    match label.trim_start_matches('0') {
        "" => "0",
        number => number,
    }
}

/// Returns the stem for a label file, or `None` for other files.
fn label_of(name: &str) -> Option<&str> {
    let stem = stem(name);
    name.get(stem.len()..)
        .is_some_and(|ending| ending.eq_ignore_ascii_case(".cls"))
        .then_some(stem)
}
