//! Finds and lists samples inside shards.

use super::Store;
use super::fetch::ReadRequest;
use super::list::LARGEST_PAGE;
use crate::root::LISTING;
use crate::shards::{
    ArchiveError, Index, LARGEST_INDEX, ReservedIndex, SampleName, ShardSample, ShardVersion, Version,
    is_shard, layout_of,
};
use crate::{ObjectError, key};
use frostline_tensor::{Layout, ObjectInfo, ObjectPage, SampleRef, SkippedNames};
use futures::{StreamExt, stream};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Range size for reading a shard, in bytes. The size is large compared with a store's latency of 30 ms, and
/// small compared with memory.
const RANGE: u64 = 4 << 20;

/// Concurrent range reads per shard, to hide latency.
const RANGES_AT_ONCE: usize = 4;

/// Time limit for reading a shard through, including the wait for its turn: 24 GB at 40 MB/s.
const READ_THROUGH: Duration = Duration::from_secs(600);

/// Maximum duration of adding samples to a page that already contains some. HTTP clients wait about a minute
/// for a page.
const PAGE_TIME: Duration = Duration::from_secs(15);

/// Location of a sample.
#[derive(Debug)]
pub(super) struct SampleRange {
    /// The shard's etag, if it is known.
    pub(super) etag: Option<String>,
    /// Bytes of the sample in the shard.
    pub(super) range: Range<u64>,
}

impl Store {
    /// Lists the samples of a root with the given layout. For shards, lists the samples inside them with
    /// their labels, by shard and then by name. A shard is read through to index its samples. It is read
    /// through again if it was replaced, or if its index is not cached (anymore) because memory was needed
    /// elsewhere.
    ///
    /// # Errors
    /// Returns the errors of [`Store::list`], [`ObjectError::Shard`] if an archive cannot be read,
    /// [`ObjectError::Changed`] if it is replaced during the listing, and [`ObjectError::OutOfBudget`] if no
    /// memory is available for reading it.
    pub async fn list_as(
        &self,
        layout: Layout,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ObjectPage, ObjectError> {
        let limit = limit.clamp(1, LARGEST_PAGE);
        match (layout, after) {
            (Layout::Objects, _) => self.list(after, limit).await,
            (Layout::Shards, _) => self.page_of_samples(after, limit).await,
            // Later pages use the layout of the first one.
            (Layout::Auto, Some(last)) if SampleName::parse(last).is_some() => {
                self.page_of_samples(after, limit).await
            }
            (Layout::Auto, Some(_)) => self.list(after, limit).await,
            (Layout::Auto, None) => {
                let first = self.list(None, LARGEST_PAGE).await?;
                let keys = first.objects.iter().map(|object| object.sample.key.as_str());
                match layout_of(keys) {
                    Layout::Shards => self.page_of_samples(None, limit).await,
                    _ if limit == LARGEST_PAGE => Ok(first),
                    _ => self.list(None, limit).await,
                }
            }
        }
    }

    async fn page_of_samples(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        let page = self.list_samples(after, limit);
        self.scope.root.within(READ_THROUGH, LISTING, page).await
    }

    async fn list_samples(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        let until = Instant::now() + PAGE_TIME;
        let mut page = SamplePage::new(limit);
        let mut after_shard = after.map(str::to_owned);
        if let Some(last) = after.and_then(SampleName::parse) {
            // The shard may have been removed since the last page.
            if let Some(shard) = unless_removed(self.shard(last.shard).await)?
                && let Some(index) = unless_removed(self.index(&shard).await)?
            {
                page.add_samples(&shard, index.after(last.member));
            }
            after_shard = Some(last.shard.to_owned());
        }
        loop {
            let listed = self.page(after_shard.as_deref(), LARGEST_PAGE).await?;
            page.skipped_after.extend(listed.before);
            let mut odd = listed.skipped.iter().peekable();
            for shard in listed
                .objects
                .iter()
                .filter(|object| is_shard(&object.sample.key))
            {
                if page.is_full() || (!page.objects.is_empty() && Instant::now() > until) {
                    return Ok(page.cut_short());
                }
                while let Some(odd) = odd.next_if(|odd| **odd < shard.sample.key) {
                    page.skipped_after.add(odd);
                }
                if let Some(index) = unless_removed(self.index(shard).await)? {
                    page.enter(shard, &index.index);
                }
            }
            odd.for_each(|odd| page.skipped_after.add(odd));
            match listed.next {
                Some(next) => after_shard = Some(next),
                // The last shard can exceed the page.
                None if page.is_full() => return Ok(page.cut_short()),
                None => return Ok(page.last()),
            }
        }
    }

    /// Locates a sample using the version or, if not available, the index of the shard.
    pub(super) async fn locate(
        &self,
        sample: SampleName<'_>,
        etag: Option<&str>,
    ) -> Result<SampleRange, ObjectError> {
        key::checked(sample.member)?;
        if let Some(version) = etag.and_then(Version::parse) {
            return Ok(SampleRange {
                range: version.offset..version.offset + version.size,
                etag: Some(version.shard),
            });
        }
        let shard = self.shard(sample.shard).await?;
        let index = self.index(&shard).await?;
        let entry = index.get(sample.member).ok_or_else(|| ObjectError::NotFound {
            key: sample.key(),
            root: self.scope.root.shown.clone(),
        })?;
        if etag.is_some() {
            // The etag does not describe a sample. Another object had this key.
            return Err(self.scope.root.changed(&sample.key()));
        }
        Ok(SampleRange {
            range: entry.offset..entry.offset + entry.size,
            etag: shard.sample.etag,
        })
    }

    async fn shard(&self, key: &str) -> Result<ObjectInfo, ObjectError> {
        let meta = self.head(key).await?;
        Ok(self.listed(key.to_owned(), meta))
    }

    /// Returns the shard's index. Reads the shard through if the index is not cached.
    async fn index(&self, shard: &ObjectInfo) -> Result<Arc<ReservedIndex>, ObjectError> {
        let version = ShardVersion {
            location: self.scope.checked(&shard.sample.key)?.into(),
            // Without an etag, only a change of the size is detected.
            etag: shard
                .sample
                .etag
                .clone()
                .unwrap_or_else(|| shard.size.to_string()),
            changed: shard.changed,
        };
        self.indexes
            .get(version, || {
                let store = self.clone();
                let shard = shard.clone();
                async move {
                    let made = store.read_through(&shard);
                    let root = &store.scope.root;
                    root.within(READ_THROUGH, &shard.sample.key, made).await
                }
            })
            .await
    }

    /// Reads a shard through. The maximum memory is reserved before reading, because ranges that reserve
    /// memory separately could wait for each other.
    async fn read_through(&self, shard: &ObjectInfo) -> Result<ReservedIndex, ObjectError> {
        let key = &shard.sample.key;
        let ranges = shard.size.min(RANGES_AT_ONCE as u64 * RANGE);
        // The names are part of the archive, so the index is not larger.
        let most = ranges + shard.size.min(LARGEST_INDEX as u64);
        let reading = self.room.enter(key, most).await?;
        let index = self.read_index(shard).await?;
        let kept = self.room.keep(index.bytes() as u64);
        Ok(ReservedIndex {
            index,
            keep: kept.is_some(),
            _memory: kept.or(reading),
        })
    }

    async fn read_index(&self, shard: &ObjectInfo) -> Result<Index, ObjectError> {
        let key = &shard.sample.key;
        let location = self.scope.checked(key)?;
        let ranges = (0..shard.size.div_ceil(RANGE)).map(|number| {
            let wanted = ReadRequest {
                key,
                location: location.clone(),
                range: Some(number * RANGE..((number + 1) * RANGE).min(shard.size)),
                etag: shard.sample.etag.clone(),
                limit: RANGE,
                covered: true,
            };
            async move {
                let got = self.get(&wanted);
                self.scope.root.in_time(key, got).await
            }
        });
        let ranges = stream::iter(ranges).buffered(RANGES_AT_ONCE);
        let ranges = pin!(ranges.then(|bytes| self.with_storage_class(&location, bytes)));
        Index::read(ranges).await.map_err(|error| match error {
            ArchiveError::Read(error) => error,
            error => ObjectError::Shard {
                key: key.to_owned(),
                root: self.scope.root.shown.clone(),
                reason: error.into(),
            },
        })
    }
}

/// Returns `None` if the shard was removed after it was listed, as for objects.
fn unless_removed<T>(read: Result<T, ObjectError>) -> Result<Option<T>, ObjectError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(ObjectError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A page of samples under construction.
struct SamplePage {
    limit: usize,
    objects: Vec<ObjectInfo>,
    /// Invalid names up to the last sample.
    left_out: SkippedNames,
    /// Invalid names after the last sample. A page that is cut short leaves them to the next page.
    skipped_after: SkippedNames,
}

impl SamplePage {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            objects: Vec::new(),
            left_out: SkippedNames::default(),
            skipped_after: SkippedNames::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.objects.len() == self.limit
    }

    /// Adds the first samples in a shard and counts invalid names.
    fn enter(&mut self, shard: &ObjectInfo, index: &Index) {
        self.skipped_after.extend(index.odd().clone());
        let entries = index.after("");
        let too_long = entries.iter().filter(|entry| sample(shard, entry).is_none());
        too_long.for_each(|entry| self.skipped_after.add(&entry.name));
        self.add_samples(shard, entries);
    }

    /// Adds samples from a shard until the page is full.
    fn add_samples(&mut self, shard: &ObjectInfo, entries: &[ShardSample]) {
        let before = self.objects.len();
        let samples = entries.iter().filter_map(|entry| sample(shard, entry));
        self.objects.extend(samples.take(self.limit - before));
        if self.objects.len() > before {
            self.left_out.extend(std::mem::take(&mut self.skipped_after));
        }
    }

    /// Returns the page if others follow.
    fn cut_short(self) -> ObjectPage {
        ObjectPage {
            next: self.objects.last().map(|last| last.sample.key.clone()),
            objects: self.objects,
            left_out: self.left_out,
        }
    }

    fn last(mut self) -> ObjectPage {
        self.left_out.extend(self.skipped_after);
        ObjectPage {
            next: None,
            objects: self.objects,
            left_out: self.left_out,
        }
    }
}

/// Returns a sample for a listing, or `None` if the key is too long.
fn sample(shard: &ObjectInfo, entry: &ShardSample) -> Option<ObjectInfo> {
    let name = SampleName {
        shard: &shard.sample.key,
        member: &entry.name,
    };
    let version = shard.sample.etag.clone().map(|etag| Version {
        shard: etag,
        offset: entry.offset,
        size: entry.size,
    });
    let key = name.key();
    (key.len() <= key::MAX_KEY_LENGTH).then(|| ObjectInfo {
        sample: SampleRef {
            key,
            etag: version.map(|version| version.etag()),
        },
        size: entry.size,
        label: entry.label.as_deref().map(str::to_owned),
        changed: shard.changed,
    })
}
