//! Which samples a shard holds, and where.

use super::archive::{ArchiveError, ArchiveReader, Member, Visitor};
use super::name::is_image;
use crate::key;
use frostline_tensor::LeftOut;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The most memory an index may take: some 150,000 samples with usual names. WebDataset advises shards of 1 GB, some ten thousand
/// photos, and a stranger's archive of empty files must not take the host's memory.
pub(crate) const LARGEST_INDEX: usize = 16 << 20;

/// What an entry takes beside its name.
const ENTRY: usize = 64;

/// The longest label: a class's name is a word or two.
const LONGEST_LABEL: u64 = 256;

/// One sample of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// What its `.cls` file says.
    pub(crate) label: Option<Arc<str>>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// The samples of a shard, ascending by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    odd: LeftOut,
    bytes: usize,
}

impl Index {
    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.name.as_str().cmp(name))
            .ok()?;
        self.entries.get(at)
    }

    /// The samples with names greater than `name`.
    pub(crate) fn after(&self, name: &str) -> &[Entry] {
        let first = self.entries.partition_point(|entry| entry.name.as_str() <= name);
        self.entries.get(first..).unwrap_or_default()
    }

    /// Images whose names cannot be a part of a key.
    pub(crate) fn odd(&self) -> &LeftOut {
        &self.odd
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Makes an [`Index`] of an archive's bytes.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    reader: ArchiveReader,
    found: Found,
}

impl IndexBuilder {
    pub(crate) fn new() -> Self {
        Self {
            reader: ArchiveReader::new(),
            found: Found::default(),
        }
    }

    /// Reads on with the archive's next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.reader.feed(bytes, &mut self.found)
    }

    /// The index of the archive that was fed whole.
    pub(crate) fn finish(self) -> Result<Index, ArchiveError> {
        self.reader.finish()?;
        let Found {
            images,
            labels,
            odd,
            bytes,
            ..
        } = self.found;
        let entries = images.into_iter().map(|(name, (offset, size))| Entry {
            label: labels.get(stem(&name)).cloned(),
            name,
            offset,
            size,
        });
        Ok(Index {
            entries: entries.collect(),
            odd,
            bytes,
        })
    }
}

#[derive(Debug, Default)]
struct Found {
    /// Offset and size by name; of two with one name the later holds, as for tar.
    images: BTreeMap<String, (u64, u64)>,
    /// By the name without its ending.
    labels: HashMap<String, Arc<str>>,
    classes: HashSet<Arc<str>>,
    odd: LeftOut,
    bytes: usize,
}

impl Found {
    fn count(&mut self, bytes: usize) -> Result<(), ArchiveError> {
        self.bytes += bytes + ENTRY;
        if self.bytes > LARGEST_INDEX {
            return Err(ArchiveError::TooMany { limit: LARGEST_INDEX });
        }
        Ok(())
    }
}

impl Visitor for Found {
    fn member(&mut self, member: &Member) -> Result<Option<u64>, ArchiveError> {
        let Some(name) = plain(&member.name) else {
            let name = String::from_utf8_lossy(&member.name);
            if is_image(&name) {
                self.odd.add(&name);
            }
            return Ok(None);
        };
        if is_image(name) {
            self.count(name.len())?;
            self.images.insert(name.to_owned(), (member.offset, member.size));
        }
        Ok(label_of(name).map(|_| LONGEST_LABEL))
    }

    fn content(&mut self, member: &Member, content: &[u8]) -> Result<(), ArchiveError> {
        let stem = plain(&member.name).and_then(label_of);
        let label = std::str::from_utf8(content).ok().map(str::trim);
        let (Some(stem), Some(label)) = (stem, label) else {
            return Ok(());
        };
        if label.is_empty() || label.chars().any(char::is_control) {
            return Ok(());
        }
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

/// A member's name as part of a key; none if it cannot be one. `tar -c .` writes `./` before every name.
fn plain(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let name = name.strip_prefix("./").unwrap_or(name);
    key::checked(name).is_ok().then_some(name)
}

/// What the files of one sample have in common: all before the first dot of the last segment, as WebDataset has it.
fn stem(name: &str) -> &str {
    let folder = name.rfind('/').map_or(0, |slash| slash + 1);
    let file = name.get(folder..).unwrap_or_default();
    let length = folder + file.find('.').unwrap_or(file.len());
    name.get(..length).unwrap_or_default()
}

/// The stem of a file with a label.
fn label_of(name: &str) -> Option<&str> {
    let stem = stem(name);
    name.get(stem.len()..)
        .is_some_and(|ending| ending.eq_ignore_ascii_case(".cls"))
        .then_some(stem)
}
