//! Samples inside shards: finding them, and listing them.

use super::Store;
use crate::fetch::Wanted;
use crate::hedge::Pulse;
use crate::list::LARGEST_PAGE;
use crate::room::Room;
use crate::root::LISTING;
use crate::shards::{
    ArchiveError, Entry, Held, Index, IndexBuilder, LARGEST_INDEX, SampleName, ShardVersion, Version,
    is_shard, layout_of,
};
use crate::{ObjectError, key};
use frostline_tensor::{Layout, LeftOut, ObjectInfo, ObjectPage, SampleRef};
use futures::{StreamExt, stream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A shard is read through in ranges of this many bytes: large beside the 30 ms a store takes to answer, small beside memory.
const RANGE: u64 = 4 << 20;

/// Ranges of one shard that are read at once; they hide each other's waiting.
const RANGES_AT_ONCE: usize = 4;

/// How long reading a shard through may take, with the wait for its turn: 24 GB at 40 MB/s.
const READ_THROUGH: Duration = Duration::from_secs(600);

/// How long a page looks for more samples once it has some. Whoever waits for a page over HTTP waits for a minute or so.
const PAGE_TIME: Duration = Duration::from_secs(15);

/// Where a sample lies.
#[derive(Debug)]
pub(super) struct Stretch {
    /// The shard's etag, as far as it is known.
    pub(super) etag: Option<String>,
    /// The sample's bytes in the shard.
    pub(super) range: Range<u64>,
}

impl Store {
    /// [`Store::list`] of the samples of a root laid out as `layout`: for shards, of all samples inside them, by shard and then by
    /// name, with their labels. A shard is read through once, and again when it was replaced.
    ///
    /// # Errors
    /// As [`Store::list`], and [`ObjectError::Shard`] for an archive that cannot be read.
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
            // Later pages go on as the first one began.
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
            match self.shard(last.shard).await {
                Ok(shard) => page.add_samples(&shard, self.index(&shard).await?.after(last.member)),
                // Removed since the last page.
                Err(ObjectError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            after_shard = Some(last.shard.to_owned());
        }
        loop {
            let listed = self.lister.page(after_shard.as_deref(), LARGEST_PAGE).await?;
            page.passed.extend(listed.before);
            let mut odd = listed.odd.iter().peekable();
            for shard in listed
                .objects
                .iter()
                .filter(|object| is_shard(&object.sample.key))
            {
                if page.is_full() || (!page.objects.is_empty() && Instant::now() > until) {
                    return Ok(page.cut_short());
                }
                while let Some(odd) = odd.next_if(|odd| odd.name < shard.sample.key) {
                    odd.count_into(&mut page.passed);
                }
                page.enter(shard, &self.index(shard).await?.index);
            }
            odd.for_each(|odd| odd.count_into(&mut page.passed));
            match listed.next {
                Some(next) => after_shard = Some(next),
                // The last shard may hold more than the page takes.
                None if page.is_full() => return Ok(page.cut_short()),
                None => return Ok(page.last()),
            }
        }
    }

    /// Where the sample lies: its version says it, else the index of its shard does.
    pub(super) async fn stretch(
        &self,
        sample: SampleName<'_>,
        etag: Option<&str>,
    ) -> Result<Stretch, ObjectError> {
        key::checked(sample.member)?;
        if let Some(version) = etag.and_then(Version::parse) {
            return Ok(Stretch {
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
            // It is no sample's version: that of something else that had this key.
            return Err(self.scope.root.changed(&sample.key()));
        }
        Ok(Stretch {
            range: entry.offset..entry.offset + entry.size,
            etag: shard.sample.etag,
        })
    }

    async fn shard(&self, key: &str) -> Result<ObjectInfo, ObjectError> {
        let meta = self.head(key).await?;
        Ok(self.lister.listed(key.to_owned(), meta))
    }

    /// The shard's index, read through where it is not kept.
    async fn index(&self, shard: &ObjectInfo) -> Result<Arc<Held>, ObjectError> {
        let version = ShardVersion {
            location: self.scope.checked(&shard.sample.key)?.into(),
            // Without a version, a shard of another size is another one at least.
            etag: shard
                .sample
                .etag
                .clone()
                .unwrap_or_else(|| shard.size.to_string()),
        };
        let make = || {
            let (store, shard) = (self.clone(), shard.clone());
            async move {
                let made = store.read_through(&shard);
                let root = &store.scope.root;
                root.within(READ_THROUGH, &shard.sample.key, made).await
            }
        };
        self.indexes.get(version, make).await
    }

    /// Reads a shard through. The most that takes is reserved before its first byte, all at once: ranges that waited for memory one by one
    /// could wait for each other.
    async fn read_through(&self, shard: &ObjectInfo) -> Result<Held, ObjectError> {
        let key = &shard.sample.key;
        let ranges = shard.size.min(RANGES_AT_ONCE as u64 * RANGE);
        // Names lie in the archive, so its index is no larger.
        let most = ranges + shard.size.min(LARGEST_INDEX as u64);
        let reading = self.room.enter(key, most, &Pulse::default()).await?;
        let index = self.read_index(shard).await?;
        let kept = self.room.keep(index.bytes() as u64);
        Ok(Held {
            index,
            keep: kept.is_some(),
            _memory: kept.or(reading),
        })
    }

    async fn read_index(&self, shard: &ObjectInfo) -> Result<Index, ObjectError> {
        let key = &shard.sample.key;
        let location = self.scope.checked(key)?;
        let unreadable = |error: ArchiveError| ObjectError::Shard {
            key: key.clone(),
            root: self.scope.root.shown.clone(),
            reason: error.into(),
        };
        let ranges = (0..shard.size.div_ceil(RANGE)).map(|number| {
            let wanted = Wanted {
                root: &self.scope.root,
                key,
                location: location.clone(),
                range: Some(number * RANGE..((number + 1) * RANGE).min(shard.size)),
                etag: shard.sample.etag.clone(),
                limit: RANGE,
                room: Room::default(),
            };
            async move {
                let got = self.fetcher.get(&wanted);
                self.scope.root.in_time(key, got).await
            }
        });
        let mut ranges = stream::iter(ranges).buffered(RANGES_AT_ONCE);
        let mut builder = IndexBuilder::new();
        while let Some(bytes) = ranges.next().await {
            builder.feed(&bytes?).map_err(unreadable)?;
        }
        builder.finish().map_err(unreadable)
    }
}

/// A page of samples as it fills.
struct SamplePage {
    limit: usize,
    objects: Vec<ObjectInfo>,
    /// Names that are no keys, up to the last sample.
    left_out: LeftOut,
    /// Those after it: a page that is cut short leaves them to the next one.
    passed: LeftOut,
}

impl SamplePage {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            objects: Vec::new(),
            left_out: LeftOut::default(),
            passed: LeftOut::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.objects.len() == self.limit
    }

    /// Takes the first samples of a shard, and counts what it holds that is none by its name.
    fn enter(&mut self, shard: &ObjectInfo, index: &Index) {
        self.passed.extend(index.odd().clone());
        let entries = index.after("");
        let too_long = entries.iter().filter(|entry| sample(shard, entry).is_none());
        too_long.for_each(|entry| self.passed.add(&entry.name));
        self.add_samples(shard, entries);
    }

    /// Adds samples of a shard until the page is full.
    fn add_samples(&mut self, shard: &ObjectInfo, entries: &[Entry]) {
        let before = self.objects.len();
        let samples = entries.iter().filter_map(|entry| sample(shard, entry));
        self.objects.extend(samples.take(self.limit - before));
        if self.objects.len() > before {
            self.left_out.extend(std::mem::take(&mut self.passed));
        }
    }

    /// The page, where others follow.
    fn cut_short(self) -> ObjectPage {
        ObjectPage {
            next: self.objects.last().map(|last| last.sample.key.clone()),
            objects: self.objects,
            left_out: self.left_out,
        }
    }

    /// The page, where it is the last.
    fn last(mut self) -> ObjectPage {
        self.left_out.extend(self.passed);
        ObjectPage {
            next: None,
            objects: self.objects,
            left_out: self.left_out,
        }
    }
}

/// A sample as listings tell of it; none if its key would be too long.
fn sample(shard: &ObjectInfo, entry: &Entry) -> Option<ObjectInfo> {
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
    (key.len() <= key::LONGEST).then(|| ObjectInfo {
        sample: SampleRef {
            key,
            etag: version.map(|version| version.etag()),
        },
        size: entry.size,
        label: entry.label.as_deref().map(str::to_owned),
    })
}
