use crate::cache::{Evicted, Room};
use crate::error::failed;
use crate::index::{Index, Slot};
use crate::writer::{Pending, Writer};
use crate::{FeatureError, Form, Row, RowKey, Segment, SegmentForm, Stopped};
use frostline_tensor::Tensor;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::File;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Rows that were found.
#[derive(Debug)]
pub struct Found {
    /// `[found, ..row]`, `f32`, in the order asked for; none where nothing was found.
    pub rows: Option<Tensor>,
    /// Which of those asked for they are, ascending.
    pub places: Vec<usize>,
}

/// The rows of one subject. Reading waits for the disk; keeping does not.
///
/// All jobs that use it write, in turns; each sees the rows of the others from its next [`Store::refresh`] on. Rows that are
/// to be written are found at once. Dropping it writes them.
pub struct Store {
    inner: Arc<Inner>,
    writer: Writer,
    /// Locked by the job that shares the rows with other machines.
    lead: Mutex<Option<File>>,
    room: Room,
    about: Vec<u8>,
    /// Locked as long as a job uses the store.
    _used: File,
}

/// A store's folder, which is there, and what is held of it.
pub(crate) struct OpenStore {
    pub(crate) room: Room,
    /// Says that the store is used.
    pub(crate) used: File,
    /// Locked by whoever writes.
    pub(crate) turn: File,
    /// What people may read of it elsewhere.
    pub(crate) about: Vec<u8>,
    /// What made room for it.
    pub(crate) evicted: Evicted,
}

/// What reading and writing share.
pub(crate) struct Inner {
    form: Form,
    shape: Vec<usize>,
    values: usize,
    pub(crate) row_bytes: usize,
    pub(crate) rows: File,
    pub(crate) index: File,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) known: Index,
    pub(crate) pending: Pending,
    /// Rows whose bytes were not what was written, since somebody was told.
    broken: u64,
    /// Rows that were not kept, because those before them were not written yet, since somebody was told.
    pub(crate) passed_over: u64,
    /// What made room for it, until somebody was told.
    evicted: Evicted,
}

impl State {
    fn has(&self, key: &RowKey) -> bool {
        self.pending.get(key).is_some() || self.known.get(key).is_some()
    }
}

/// Where a row is now.
enum Place {
    Disk(Slot),
    Memory(Arc<Tensor>, usize),
}

impl Store {
    /// The store in an open folder. Tells when it stops to write before its time.
    pub(crate) fn open(opened: OpenStore, row: &Row, told: Stopped) -> Result<Self, FeatureError> {
        let path = opened.room.store();
        let file = |name: &str| {
            let path = path.join(name);
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).map_err(failed("opening", &path))
        };
        let inner = Inner {
            form: row.form,
            shape: row.shape.clone(),
            values: row.values()?,
            row_bytes: row.bytes()?,
            rows: file("rows")?,
            index: file("index")?,
            state: Mutex::default(),
        };
        let inner = Arc::new(inner);
        let writer = Writer::start(Arc::clone(&inner), opened.turn, opened.room.clone(), told);
        let store = Self {
            inner,
            writer: writer.map_err(failed("starting a thread to write", path))?,
            lead: Mutex::new(None),
            room: opened.room,
            about: opened.about,
            _used: opened.used,
        };
        store.inner.state.lock().evicted = opened.evicted;
        store.refresh()?;
        Ok(store)
    }

    /// Takes in what others wrote meanwhile.
    ///
    /// # Errors
    /// [`FeatureError::Io`].
    pub fn refresh(&self) -> Result<(), FeatureError> {
        let index = self.path().join("index");
        let read = self.inner.state.lock().known.read_on(&self.inner.index);
        read.map_err(failed("reading", &index))
    }

    /// Those of `keys` that are there. A row whose bytes are not what was written counts as not there, and may be kept again.
    pub fn read(&self, keys: &[RowKey]) -> Found {
        let inner = &*self.inner;
        let places: Vec<(usize, Place)> = {
            let state = inner.state.lock();
            let place = |key: &RowKey| {
                let memory = || state.pending.get(key).map(|(rows, row)| Place::Memory(rows, row));
                memory().or_else(|| state.known.get(key).map(Place::Disk))
            };
            let placed = keys.iter().enumerate();
            placed
                .filter_map(|(index, key)| Some((index, place(key)?)))
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
        Found {
            rows: rows.filter(|_| !found.is_empty()),
            places: found,
        }
    }

    /// Makes `rows` `[rows, ..row]` what will be read of them: whoever uses rows before they are kept uses these. Those without a key stay as
    /// they are, and one that cannot be kept loses its key.
    pub fn round(&self, keys: &mut [Option<RowKey>], rows: &mut Tensor) {
        let inner = &*self.inner;
        if inner.form == Form::F32 || rows.as_f32().is_none() {
            return;
        }
        let values: &mut [f32] = bytemuck::try_cast_slice_mut(rows.as_bytes_mut()).unwrap_or_default();
        for (key, row) in keys.iter_mut().zip(values.chunks_exact_mut(inner.values)) {
            if key.is_some() && !inner.form.round(row) {
                *key = None;
            }
        }
    }

    /// Keeps rows `[rows, ..row]` of the samples whose keys are given; a row without one is none that is to be kept. Does not wait: a row is passed over
    /// where those before it wait to be written already.
    pub fn keep(&self, mut keys: Vec<Option<RowKey>>, mut rows: Tensor) {
        let inner = &*self.inner;
        let fits = rows.shape().dims().get(1..) == Some(inner.shape.as_slice());
        if !fits || rows.as_f32().is_none() {
            return;
        }
        self.round(&mut keys, &mut rows);
        self.writer.keep(keys, rows);
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.room.store()
    }

    /// What it is called on every machine.
    pub fn name(&self) -> String {
        let name = self.path().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// What people may read of it elsewhere.
    pub fn about(&self) -> &[u8] {
        &self.about
    }

    /// How many of `keys` are there.
    pub fn count<'a>(&self, keys: impl Iterator<Item = &'a RowKey>) -> usize {
        let state = self.inner.state.lock();
        keys.filter(|key| state.has(key)).count()
    }

    /// Which of `keys` are there.
    pub fn has(&self, keys: &[RowKey]) -> Vec<bool> {
        let state = self.inner.state.lock();
        keys.iter().map(|key| state.has(key)).collect()
    }

    /// What did not go as it should since this was last asked, a sentence each: of that, whoever uses the store is only slower.
    pub fn news(&self) -> Vec<String> {
        let (broken, late, evicted) = {
            let mut state = self.inner.state.lock();
            (
                mem::take(&mut state.broken),
                mem::take(&mut state.passed_over),
                mem::take(&mut state.evicted),
            )
        };
        let mut news = Vec::new();
        if evicted.stores > 0 {
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
                "{late} times a row was not kept because the disk did not follow; it was computed again where it was needed"
            ));
        }
        news
    }

    /// Bytes that so many rows take on disk.
    pub fn disk_bytes(&self, rows: u64) -> u64 {
        let each = self.inner.row_bytes + crate::index::RECORD;
        rows.saturating_mul(each as u64)
    }

    /// Bytes of a row in memory.
    pub fn row_memory(&self) -> u64 {
        self.inner.values as u64 * 4
    }

    /// Waits until all rows that were kept are written, or cannot be.
    pub fn settle(&self) {
        self.writer.settle();
    }
}

/// Rows that machines share.
impl Store {
    /// Whether of this machine's jobs this is the one that shares: the first to ask among those that run.
    pub fn shares(&self) -> bool {
        let mut lead = self.lead.lock();
        if lead.is_none() {
            let file = File::create(self.path().join("lead")).ok();
            *lead = file.filter(|file| file.try_lock().is_ok());
        }
        lead.is_some()
    }

    /// What its segments are like.
    pub fn segments(&self) -> SegmentForm {
        SegmentForm::new(&self.name(), self.inner.row_bytes)
    }

    /// Rows for which there is still room.
    pub fn free_rows(&self) -> u64 {
        let records = self.inner.state.lock().known.records();
        (self.room.bytes() / self.disk_bytes(1).max(1)).saturating_sub(records)
    }

    /// Rows on disk that other jobs can use and that are not among those `shared` already, in the order in which they lie.
    pub fn unshared(&self, shared: &HashSet<RowKey>) -> Vec<RowKey> {
        let mut rows = self.inner.state.lock().known.all();
        // Sorted while nobody who reads or keeps rows waits.
        rows.retain(|(_, key)| key.travels() && !shared.contains(key));
        rows.sort_unstable_by_key(|(number, _)| *number);
        rows.into_iter().map(|(_, key)| key).collect()
    }

    /// Those of `keys` that are on disk, as they travel; at most as many as a segment has. `None` where there is none of them.
    pub fn segment(&self, keys: &[RowKey]) -> Option<Segment> {
        let form = self.segments();
        let (mut records, mut rows) = (Vec::new(), Vec::new());
        let mut row = vec![0; self.inner.row_bytes];
        for key in keys.iter().take(form.most_rows()) {
            let slot = self.inner.state.lock().known.get(key);
            if let Some(slot) = slot.filter(|_| key.travels())
                && self.inner.read_bytes(key, slot, &mut row).is_ok()
            {
                records.push((*key, slot.checksum));
                rows.extend_from_slice(&row);
            }
        }
        form.build(&records, &rows)
    }

    /// Keeps the rows of a segment of this store that are sound and not there yet, and waits until they are written. Returns how many there are
    /// now: none where there is no room.
    pub fn take_in(&self, segment: &Segment) -> usize {
        let inner = &*self.inner;
        if segment.form() != self.segments() {
            return 0;
        }
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (key, bytes) in segment.sound() {
            if self.count([key].iter()) > 0 {
                continue;
            }
            let start = values.len();
            values.resize(start + inner.values, 0.0);
            let Some(into) = values.get_mut(start..) else {
                continue;
            };
            let fill = |row: &mut [u8]| {
                row.copy_from_slice(bytes);
                Ok::<(), std::convert::Infallible>(())
            };
            let _ = inner.form.read(into, fill);
            keys.push(key);
        }
        let shape = frostline_tensor::Shape::new(inner.shape.as_slice()).batched(keys.len());
        if keys.is_empty() {
            return 0;
        }
        if let Ok(rows) = Tensor::f32(shape, values) {
            self.keep(keys.iter().copied().map(Some).collect(), rows);
        }
        self.settle();
        self.count(keys.iter())
    }
}

impl Inner {
    /// The bytes of a row on disk.
    fn read_bytes(&self, key: &RowKey, slot: Slot, into: &mut [u8]) -> Result<(), ()> {
        let at = slot.number * self.row_bytes as u64;
        self.rows.read_exact_at(into, at).map_err(drop)?;
        (key.checksum(into) == slot.checksum).then_some(()).ok_or(())
    }

    fn read(&self, key: &RowKey, place: Place, into: &mut [f32]) -> bool {
        match place {
            Place::Memory(rows, row) => self.row_of(&rows, row).is_some_and(|row| {
                into.copy_from_slice(row);
                true
            }),
            Place::Disk(slot) => {
                let read = self.form.read(into, |bytes| self.read_bytes(key, slot, bytes));
                if read.is_err() {
                    let mut state = self.state.lock();
                    state.known.forget(key, slot);
                    state.broken += 1;
                }
                read.is_ok()
            }
        }
    }

    /// The values of a row of `rows`.
    pub(crate) fn row_of<'a>(&self, rows: &'a Tensor, row: usize) -> Option<&'a [f32]> {
        rows.as_f32()?.get(row * self.values..(row + 1) * self.values)
    }

    /// Appends a row's bytes as they lie on disk.
    pub(crate) fn write_row(&self, rows: &Tensor, row: usize, bytes: &mut Vec<u8>) {
        if let Some(values) = self.row_of(rows, row) {
            self.form.write(values, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::{Handed, append_rows, take_up};

    #[test]
    fn rows_that_a_refresh_finds_while_they_are_written_are_known_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(folder.path().join(name)).unwrap()
        };
        let inner = Inner {
            form: Form::F32,
            shape: vec![2],
            values: 2,
            row_bytes: 8,
            rows: file("rows"),
            index: file("index"),
            state: Mutex::default(),
        };
        for batch in 0..3_u8 {
            let keys = [2 * batch, 2 * batch + 1].map(|number| RowKey([number; RowKey::BYTES]));
            let rows = Tensor::f32([2, 2], vec![f32::from(batch); 4]).unwrap();
            let handed = Handed {
                keys: keys.map(Some).to_vec(),
                rows: Arc::new(rows),
                bytes: 16,
            };
            append_rows(&inner, &handed, u64::MAX).unwrap();
            // The next pass over the samples begins just now.
            inner.state.lock().known.read_on(&inner.index).unwrap();
            take_up(&inner).unwrap();
            assert_eq!(inner.state.lock().known.records(), 2 * (u64::from(batch) + 1));
            for key in keys {
                let slot = inner.state.lock().known.get(&key).unwrap();
                assert_eq!(inner.read_bytes(&key, slot, &mut [0; 8]), Ok(()));
            }
        }
    }
}
