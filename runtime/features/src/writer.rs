//! Writes rows on a dedicated thread, so that the training does not wait for the disk.

use crate::RowKey;
use crate::records::{RECORD, append};
use crate::rows::StoreRows;
use crate::space::StoreSpace;
use frostline_tensor::Tensor;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Maximum size of the write queue in bytes. If a disk falls further behind, it is too slow for the job.
const MOST_PENDING: u64 = 256 << 20;

/// Timeout for the write lock. Other jobs hold the lock only while they write one batch, so a job that holds
/// it longer is probably suspended.
const TURN: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 10_000 });

/// Interval between attempts to acquire the write lock.
const LOOK: Duration = Duration::from_millis(2);

/// Callback that receives the reason if writing stops, for example because the limit is reached. Called once.
pub type Stopped = Arc<dyn Fn(String) + Send + Sync>;

/// Queued rows in one batch.
pub(crate) struct Handed {
    pub(crate) keys: Vec<Option<RowKey>>,
    pub(crate) rows: Arc<Tensor>,
    pub(crate) bytes: u64,
}

/// Work of the writer thread.
enum WriterWork {
    Write(Handed),
    /// Closes this channel once all batches queued before are processed.
    Settle(mpsc::Sender<()>),
}

/// Handle of the writer thread. Dropping the handle waits until the queued rows are written.
pub(crate) struct RowWriter {
    inner: Arc<StoreRows>,
    queue: Option<mpsc::Sender<WriterWork>>,
    thread: Option<JoinHandle<()>>,
}

/// Lock held while writing.
struct WriteLock {
    lock: File,
    /// Timeout for acquiring the lock.
    wait: Duration,
}

impl RowWriter {
    /// Starts the writer thread. The lock `turn` is shared by the writers of all stores, and `room` limits
    /// the size of this store.
    #[expect(clippy::disallowed_methods, reason = "a trainer writes with a single thread")]
    pub(crate) fn start(
        inner: Arc<StoreRows>,
        turn: File,
        room: StoreSpace,
        told: Stopped,
    ) -> io::Result<Self> {
        let (queue, waiting) = mpsc::channel();
        let shared = Arc::clone(&inner);
        let mut turn = WriteLock {
            lock: turn,
            wait: TURN,
        };
        let thread = std::thread::Builder::new().name("frostline-keep".to_owned());
        Ok(Self {
            inner,
            queue: Some(queue),
            thread: Some(thread.spawn(move || {
                let mut told = Some(told);
                for work in waiting {
                    let handed = match work {
                        WriterWork::Write(handed) => handed,
                        WriterWork::Settle(done) => {
                            drop(done);
                            continue;
                        }
                    };
                    if told.is_some()
                        && let Err(why) = turn.write(&shared, &handed, &room)
                        && let Some(told) = told.take()
                    {
                        told(why);
                    }
                    release(&shared, &handed);
                }
            })?),
        })
    }

    /// Queues rows, unless the queue is full. Cached and queued rows are skipped.
    pub(crate) fn keep(&self, mut keys: Vec<Option<RowKey>>, rows: Tensor) {
        let rows = Arc::new(rows);
        let bytes = rows.byte_len() as u64;
        let mut state = self.inner.state.lock();
        for slot in &mut keys {
            slot.take_if(|key| state.index.get(key).is_some() || state.pending.rows.contains_key(key));
        }
        let missing = keys.iter().flatten().count() as u64;
        if missing == 0 {
            return;
        }
        if state.pending.bytes + bytes > MOST_PENDING && state.pending.bytes > 0 {
            state.passed_over += missing;
            return;
        }
        for (row, key) in keys.iter().enumerate() {
            if let Some(key) = key {
                state.pending.rows.insert(*key, (Arc::clone(&rows), row));
            }
        }
        state.pending.bytes += bytes;
        drop(state);
        self.send(WriterWork::Write(Handed { keys, rows, bytes }));
    }

    /// Blocks until all batches queued so far are processed. Other threads can queue rows meanwhile.
    pub(crate) fn settle(&self) {
        let (done, settled) = mpsc::channel();
        self.send(WriterWork::Settle(done));
        // Fails when the thread closes the channel.
        let _ = settled.recv();
    }

    fn send(&self, work: WriterWork) {
        if let Some(queue) = &self.queue {
            // The thread receives until the queue is closed.
            let _ = queue.send(work);
        }
    }

    /// Makes the queue appear full.
    #[cfg(test)]
    pub(crate) fn fill_queue(&self) {
        self.inner.state.lock().pending.bytes = MOST_PENDING;
    }
}

impl WriteLock {
    /// Writes rows while the lock is held. Drops the rows if the lock is not acquired in time.
    fn write(&mut self, inner: &StoreRows, handed: &Handed, room: &StoreSpace) -> Result<(), String> {
        let until = Instant::now() + self.wait;
        loop {
            match self.lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(LOOK),
                Err(TryLockError::WouldBlock) => {
                    // Later batches do not wait until the lock has been acquired again.
                    self.wait = Duration::ZERO;
                    let mut state = inner.state.lock();
                    let missing = handed.keys.iter().flatten();
                    let missing = missing.filter(|key| state.index.get(key).is_none()).count();
                    state.passed_over += missing as u64;
                    return Ok(());
                }
                Err(TryLockError::Error(error)) => return Err(error.to_string()),
            }
        }
        self.wait = TURN;
        let written = append_rows(inner, handed, room.bytes()).and_then(|()| {
            // Adds the written records to the index, except for those that a refresh has already added.
            let read = inner.state.lock().index.read_on(&inner.index);
            read.map_err(|error| error.to_string())
        });
        // Unlock explicitly. Closing the file is not enough if a forked child has inherited it.
        self.lock.unlock().map_err(|error| error.to_string())?;
        written
    }
}

impl Drop for RowWriter {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // The thread returns early only if it panics, and a panic has already been reported.
            let _ = thread.join();
        }
    }
}

/// Appends the rows that are still missing, and then their records. In this order, a record never refers to a
/// missing row. Fails if the store would exceed `room` bytes.
pub(crate) fn append_rows(inner: &StoreRows, handed: &Handed, room: u64) -> Result<(), String> {
    let mut bytes = Vec::new();
    let mut records = Vec::new();
    let new: Vec<Option<RowKey>> = {
        let mut state = inner.state.lock();
        let read = state.index.read_on(&inner.index);
        read.map_err(|error| error.to_string())?;
        let new = handed.keys.iter();
        new.map(|key| key.filter(|key| state.index.get(key).is_none()))
            .collect()
    };
    for (row, key) in new.iter().enumerate() {
        let Some(key) = key else { continue };
        let start = bytes.len();
        inner.write_row(&handed.rows, row, &mut bytes);
        let checksum = key.checksum(bytes.get(start..).unwrap_or_default());
        append(&mut records, &key.0, checksum);
    }
    if records.is_empty() {
        return Ok(());
    }
    let before = inner.state.lock().index.records();
    let after = before + (records.len() / RECORD) as u64;
    let taken = after * (inner.row_bytes + RECORD) as u64;
    if taken > room {
        return Err(format!(
            "the cache has room for {room} bytes, but {after} features need {taken}; increase the limit or clear the cache, otherwise later features are computed again in every epoch"
        ));
    }
    let written_all = inner
        .rows
        .write_all_at(&bytes, before * inner.row_bytes as u64)
        .and_then(|()| inner.index.write_all_at(&records, before * RECORD as u64));
    written_all.map_err(|error| error.to_string())
}

/// Removes a batch from the queued rows.
fn release(inner: &StoreRows, handed: &Handed) {
    let mut state = inner.state.lock();
    for key in handed.keys.iter().flatten() {
        state.pending.rows.remove(key);
    }
    state.pending.bytes = state.pending.bytes.saturating_sub(handed.bytes);
}
