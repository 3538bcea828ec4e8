use crate::contents::ContentHashes;
use crate::error::failed;
use crate::layout::RowLayout;
use crate::records::RECORD;
use crate::rows::{RowLocation, StoreRows};
use crate::space::{Evicted, StoreSpace};
use crate::writer::RowWriter;
use crate::{Content, FeatureError, Row, RowKey, RowKeys, Stopped};
use frostline_tensor::{ObjectInfo, Tensor};
use parking_lot::Mutex;
use std::fs::File;
use std::mem;
use std::path::Path;
use std::sync::Arc;

/// Result of [`Store::read`].
#[derive(Debug)]
pub struct FoundRows {
    /// Tensor `[found, ..row]` of `f32` in the order of the requested keys. `None` if no row was found.
    pub rows: Option<Tensor>,
    /// Indices of the found rows in the list of keys, ascending.
    pub places: Vec<usize>,
}

/// Rows of one subject. Reads block on the disk, and writes are queued.
///
/// Only one job writes at a time, and rows written by other jobs are visible after the next
/// [`Store::refresh`]. Queued rows are found immediately. Dropping the store writes the queued rows.
pub struct Store {
    inner: Arc<StoreRows>,
    pub(crate) writer: RowWriter,
    room: StoreSpace,
    /// Locked while a job uses the store.
    _used: File,
}

/// Opens a file for reading and writing, and creates it if it is missing.
fn open_file(path: &Path) -> Result<File, FeatureError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(failed("opening", path))
}

impl Store {
    /// Opens the store of `room`. `use_lock` marks it as used, and `turn` is the lock for writing. Calls `told` if
    /// writing stops early.
    pub(crate) fn open(
        room: StoreSpace,
        use_lock: File,
        turn: File,
        row: &Row,
        told: Stopped,
    ) -> Result<Self, FeatureError> {
        let path = room.store();
        let contents = path.join("contents");
        let layout = RowLayout::new(row)?;
        let inner = StoreRows {
            contents: ContentHashes::open(&contents).map_err(failed("opening", &contents))?,
            shape: row.shape.clone(),
            values: layout.values(),
            row_bytes: layout.bytes(),
            layout,
            rows: open_file(&path.join("rows"))?,
            index: open_file(&path.join("index"))?,
            state: Mutex::default(),
        };
        let inner = Arc::new(inner);
        let writer = RowWriter::start(Arc::clone(&inner), turn, room.clone(), told);
        let store = Self {
            inner,
            writer: writer.map_err(failed("starting the writer thread for", path))?,
            room,
            _used: use_lock,
        };
        store.refresh()?;
        Ok(store)
    }

    /// Records the stores that were evicted to make room.
    pub(crate) fn record_evicted(&self, evicted: Evicted) {
        self.inner.state.lock().evicted = evicted;
    }

    /// Reads the index records that other jobs wrote since the last call.
    ///
    /// # Errors
    /// Returns [`FeatureError::Io`] if the index cannot be read.
    pub fn refresh(&self) -> Result<(), FeatureError> {
        let index = self.path().join("index");
        let read = self.inner.state.lock().index.read_on(&self.inner.index);
        let read = read.and_then(|()| self.inner.contents.refresh());
        read.map_err(failed("reading", &index))
    }

    /// Returns what is known about the content of a sample under the root of `keys`.
    pub fn content(&self, keys: &RowKeys, sample: &ObjectInfo) -> Content {
        let Some(changed) = sample.changed else {
            return Content::Etag;
        };
        let hash = self.inner.contents.get(&keys.file_state(&sample.sample, changed));
        hash.map_or(Content::Unknown, Content::Hash)
    }

    /// Returns the samples whose content must be hashed before their rows can be found.
    pub fn unhashed(&self, keys: &RowKeys, samples: &[ObjectInfo]) -> Vec<ObjectInfo> {
        samples
            .iter()
            .filter(|sample| self.content(keys, sample) == Content::Unknown)
            .cloned()
            .collect()
    }

    /// Records the hashes of `samples`, except for those without one.
    pub fn record_contents(&self, keys: &RowKeys, samples: &[ObjectInfo], hashes: &[Option<u64>]) {
        let hashed = samples.iter().zip(hashes).filter_map(|(sample, hash)| {
            let state = keys.file_state(&sample.sample, sample.changed?);
            Some((state, (*hash)?))
        });
        self.inner.contents.add(&hashed.collect::<Vec<_>>());
    }

    /// Returns the rows of `keys` that exist. A row with a wrong checksum counts as missing and can be cached
    /// again.
    pub fn read(&self, keys: &[RowKey]) -> FoundRows {
        let inner = &*self.inner;
        let places: Vec<(usize, RowLocation)> = {
            let state = inner.state.lock();
            let placed = keys.iter().enumerate();
            placed
                .filter_map(|(index, key)| Some((index, state.locate(key)?)))
                .collect()
        };
        let mut values = vec![0.0; places.len() * inner.values];
        let mut found = Vec::with_capacity(places.len());
        for (index, place) in places {
            let start = found.len() * inner.values;
            let (Some(into), Some(key)) = (values.get_mut(start..start + inner.values), keys.get(index))
            else {
                continue;
            };
            if inner.read(key, place, into) {
                found.push(index);
            }
        }
        values.truncate(found.len() * inner.values);
        let shape = frostline_tensor::Shape::new(inner.shape.as_slice()).batched(found.len());
        let rows = Tensor::f32(shape, values).ok();
        FoundRows {
            rows: rows.filter(|_| !found.is_empty()),
            places: found,
        }
    }

    /// Rounds `rows` with shape `[rows, ..row]` to the values that later reads return, for use before they
    /// are cached. Rows without a key are not changed. If a row cannot be cached, its key is removed.
    pub fn round(&self, keys: &mut [Option<RowKey>], rows: &mut Tensor) {
        let inner = &*self.inner;
        if inner.layout.is_exact() || rows.as_f32().is_none() {
            return;
        }
        let values: &mut [f32] = bytemuck::try_cast_slice_mut(rows.as_bytes_mut()).unwrap_or_default();
        for (key, row) in keys.iter_mut().zip(values.chunks_exact_mut(inner.values)) {
            if key.is_some() && !inner.layout.round(row) {
                *key = None;
            }
        }
    }

    /// Caches `rows` with shape `[rows, ..row]`, except for rows without a key. This does not block: the rows
    /// are dropped if the write queue is full, or if their shape or type is wrong.
    pub fn keep(&self, mut keys: Vec<Option<RowKey>>, mut rows: Tensor) {
        let inner = &*self.inner;
        let fits = rows.shape().dims().get(1..) == Some(inner.shape.as_slice());
        if !fits || rows.as_f32().is_none() {
            return;
        }
        self.round(&mut keys, &mut rows);
        self.writer.keep(keys, rows);
    }

    /// Returns the folder of the store.
    pub fn path(&self) -> &Path {
        self.room.store()
    }

    /// Returns the number of `keys` that exist.
    pub fn count<'a>(&self, keys: impl Iterator<Item = &'a RowKey>) -> usize {
        let state = self.inner.state.lock();
        keys.filter(|key| state.locate(key).is_some()).count()
    }

    /// Returns the number of `keys` whose sample has a row, for this or another content.
    pub fn count_samples<'a>(&self, keys: impl Iterator<Item = &'a RowKey>) -> usize {
        let state = self.inner.state.lock();
        keys.filter(|key| state.index.has_sample(key)).count()
    }

    /// Returns messages about problems since the last call. These problems cost time but do not affect
    /// results.
    pub fn take_warnings(&self) -> Vec<String> {
        let (broken, late, evicted) = {
            let mut state = self.inner.state.lock();
            (
                mem::take(&mut state.broken),
                mem::take(&mut state.passed_over),
                mem::take(&mut state.evicted),
            )
        };
        let mut news = Vec::new();
        if evicted.stores.count > 0 {
            news.push(evicted.to_string());
        }
        if broken > 0 {
            news.push(format!(
                "{broken} cached features failed their checksum and were computed again; if this repeats, check the disk of {}",
                self.path().display()
            ));
        }
        if late > 0 {
            news.push(format!(
                "{late} features were not cached because the disk or another job is too slow, and will be computed again if needed"
            ));
        }
        news
    }

    /// Returns the disk space for `rows` rows and their index records in bytes.
    pub fn disk_bytes(&self, rows: u64) -> u64 {
        let each = self.inner.row_bytes + RECORD;
        rows.saturating_mul(each as u64)
    }

    /// Returns the size of a row in memory in bytes.
    pub fn row_memory(&self) -> u64 {
        self.inner.values as u64 * 4
    }

    /// Blocks until all queued rows are written or have failed.
    pub fn settle(&self) {
        self.writer.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::KEY;
    use crate::writer::{Handed, append_rows};

    #[test]
    fn rows_that_a_refresh_finds_while_they_are_written_are_known_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(folder.path().join(name)).unwrap()
        };
        let inner = StoreRows {
            contents: ContentHashes::open(&folder.path().join("contents")).unwrap(),
            layout: RowLayout::new(&Row {
                shape: vec![2],
                form: crate::Form::F32,
                tensors: Vec::new(),
            })
            .unwrap(),
            shape: vec![2],
            values: 2,
            row_bytes: 8,
            rows: file("rows"),
            index: file("index"),
            state: Mutex::default(),
        };
        for batch in 0..3_u8 {
            let keys = [2 * batch, 2 * batch + 1].map(|number| RowKey([number; KEY]));
            let rows = Tensor::f32([2, 2], vec![f32::from(batch); 4]).unwrap();
            let handed = Handed {
                keys: keys.map(Some).to_vec(),
                rows: Arc::new(rows),
                bytes: 16,
            };
            append_rows(&inner, &handed, u64::MAX).unwrap();
            // A refresh reads the new records before the writer does.
            for _ in 0..2 {
                inner.state.lock().index.read_on(&inner.index).unwrap();
            }
            assert_eq!(inner.state.lock().index.records(), 2 * (u64::from(batch) + 1));
            for key in keys {
                let slot = inner.state.lock().index.get(&key).unwrap();
                assert_eq!(inner.read_bytes(&key, slot, &mut [0; 8]), Ok(()));
            }
        }
    }
}
