//! Writes rows behind the back of the training, on a thread of its own.

use crate::RowKey;
use crate::cache::Room;
use crate::index::{RECORD, append};
use crate::store::Inner;
use frostline_tensor::Tensor;
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Bytes that may wait to be written: a disk that lags behind by more does not follow at all.
const MOST_PENDING: u64 = 256 << 20;

/// How long the turns of other jobs are waited for; each takes as long as a batch is written. Who waits longer waits for a job that stands still.
const TURN: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 10_000 });

/// How soon it is seen that a turn is over.
const LOOK: Duration = Duration::from_millis(2);

/// Is told once why no more rows are written: the room is used up, or the system's text.
pub type Stopped = Arc<dyn Fn(String) + Send + Sync>;

/// Rows that are to be written.
#[derive(Default)]
pub(crate) struct Pending {
    rows: HashMap<RowKey, (Arc<Tensor>, usize)>,
    bytes: u64,
}

impl Pending {
    pub(crate) fn get(&self, key: &RowKey) -> Option<(Arc<Tensor>, usize)> {
        self.rows.get(key).cloned()
    }
}

/// Rows on their way to the disk.
pub(crate) struct Handed {
    pub(crate) keys: Vec<Option<RowKey>>,
    pub(crate) rows: Arc<Tensor>,
    pub(crate) bytes: u64,
}

/// How much was handed over, and how much of it is done with.
#[derive(Default)]
pub(crate) struct Progress {
    counts: Mutex<(u64, u64)>,
    moved: Condvar,
}

/// The thread that writes. Dropping it waits until what was handed over is written.
pub(crate) struct Writer {
    inner: Arc<Inner>,
    queue: Option<mpsc::Sender<Handed>>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
}

/// The lock that whoever writes holds meanwhile.
struct Turn {
    lock: File,
    /// How long it is waited for.
    patience: Duration,
}

impl Writer {
    /// A writer that takes `turn` with those of all stores, and no more room than there is.
    pub(crate) fn start(inner: Arc<Inner>, turn: File, room: Room, told: Stopped) -> io::Result<Self> {
        let (queue, waiting) = mpsc::channel::<Handed>();
        let progress = Arc::new(Progress::default());
        let (shared, done) = (Arc::clone(&inner), Arc::clone(&progress));
        let mut turn = Turn {
            lock: turn,
            patience: TURN,
        };
        let write = move || {
            let mut told = Some(told);
            for handed in waiting {
                if told.is_some()
                    && let Err(why) = turn.run(&shared, &handed, |handed| write(&shared, handed, &room))
                    && let Some(told) = told.take()
                {
                    told(why);
                }
                release(&shared, &handed);
                done.step();
            }
        };
        let thread = std::thread::Builder::new().name("frostline-keep".to_owned());
        Ok(Self {
            inner,
            queue: Some(queue),
            progress,
            thread: Some(thread.spawn(write)?),
        })
    }

    /// Hands rows over, unless too much waits already.
    pub(crate) fn keep(&self, mut keys: Vec<Option<RowKey>>, rows: Tensor) {
        let rows = Arc::new(rows);
        let bytes = rows.byte_len() as u64;
        let mut state = self.inner.state.lock();
        if state.pending.bytes + bytes > MOST_PENDING && state.pending.bytes > 0 {
            state.passed_over += keys.iter().flatten().count() as u64;
            return;
        }
        for (row, slot) in keys.iter_mut().enumerate() {
            let Some(key) = *slot else { continue };
            if state.known.get(&key).is_some() || state.pending.rows.contains_key(&key) {
                *slot = None;
            } else {
                state.pending.rows.insert(key, (Arc::clone(&rows), row));
            }
        }
        if keys.iter().all(Option::is_none) {
            return;
        }
        state.pending.bytes += bytes;
        drop(state);
        self.progress.hand();
        if let Some(queue) = &self.queue {
            // Its thread ends only once the queue is gone.
            let _ = queue.send(Handed { keys, rows, bytes });
        }
    }

    /// Waits until all that was handed over is done with. Nobody who hands rows over waits for whoever waits here.
    pub(crate) fn settle(&self) {
        self.progress.wait();
    }
}

impl Turn {
    /// Has `write` do its work while nobody else does. Rows are passed over when it is never this job's turn.
    fn run(
        &mut self,
        inner: &Inner,
        handed: &Handed,
        write: impl FnOnce(&Handed) -> Result<(), String>,
    ) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        loop {
            match self.lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(LOOK),
                Err(TryLockError::WouldBlock) => {
                    // The rows behind these do not wait as long again.
                    self.patience = Duration::ZERO;
                    inner.state.lock().passed_over += handed.keys.iter().flatten().count() as u64;
                    return Ok(());
                }
                Err(TryLockError::Error(error)) => return Err(error.to_string()),
            }
        }
        self.patience = TURN;
        let written = write(handed);
        // Said, not left to the closing of the file: a child of a fork has it open too.
        self.lock.unlock().map_err(|error| error.to_string())?;
        written
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // It can only have ended early by a panic, which was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Progress {
    fn hand(&self) {
        self.counts.lock().unwrap_or_else(|broken| broken.into_inner()).0 += 1;
    }

    fn step(&self) {
        self.counts.lock().unwrap_or_else(|broken| broken.into_inner()).1 += 1;
        self.moved.notify_all();
    }

    /// Waits until all that was handed over is done with.
    pub(crate) fn wait(&self) {
        let counts = self.counts.lock().unwrap_or_else(|broken| broken.into_inner());
        let until = counts.0;
        let waited = self.moved.wait_while(counts, |counts| counts.1 < until);
        drop(waited);
    }
}

fn write(inner: &Inner, handed: &Handed, room: &Room) -> Result<(), String> {
    append_rows(inner, handed, room.bytes())?;
    take_up(inner)
}

/// Takes up the records that were written, less those that a refresh has taken up already.
pub(crate) fn take_up(inner: &Inner) -> Result<(), String> {
    let read = inner.state.lock().known.read_on(&inner.index);
    read.map_err(|error| error.to_string())
}

/// Writes rows behind those of others, and then their records, so that a record never says more than there is.
pub(crate) fn append_rows(inner: &Inner, handed: &Handed, room: u64) -> Result<(), String> {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let new: Vec<Option<RowKey>> = {
        let mut state = inner.state.lock();
        let read = state.known.read_on(&inner.index);
        read.map_err(|error| error.to_string())?;
        let new = handed.keys.iter();
        new.map(|key| key.filter(|key| state.known.get(key).is_none()))
            .collect()
    };
    for (row, key) in new.iter().enumerate() {
        let Some(key) = key else { continue };
        let start = bytes.len();
        inner.write_row(&handed.rows, row, &mut bytes);
        let checksum = key.checksum(bytes.get(start..).unwrap_or_default());
        append(&mut records, key, checksum);
    }
    if records.is_empty() {
        return Ok(());
    }
    let before = inner.state.lock().known.records();
    let after = before + (records.len() / RECORD) as u64;
    let taken = after * (inner.row_bytes + RECORD) as u64;
    if taken > room {
        return Err(format!(
            "it has {room} bytes, and {after} rows take {taken}; later rows are computed again in every epoch, unless --feature-cache gives it more or `frostline cache clear` makes room"
        ));
    }
    let written_all = inner
        .rows
        .write_all_at(&bytes, before * inner.row_bytes as u64)
        .and_then(|()| inner.index.write_all_at(&records, before * RECORD as u64));
    written_all.map_err(|error| error.to_string())
}

/// Forgets that rows are to be written.
fn release(inner: &Inner, handed: &Handed) {
    let mut state = inner.state.lock();
    for key in handed.keys.iter().flatten() {
        state.pending.rows.remove(key);
    }
    state.pending.bytes = state.pending.bytes.saturating_sub(handed.bytes);
}
