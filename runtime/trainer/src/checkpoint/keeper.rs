//! Writes checkpoints beside the job.

use super::lock::Kept;
use super::shelf::{KeptEpoch, Shelf};
use super::snapshot::{JobNote, Maker, Note, Situation, Snapshot};
use crate::compute::SuffixState;
use crate::pipeline::Part;
use crate::{Event, Events};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How old the last checkpoint gets unless it was said. A job that is killed loses at most that much; writing one takes well under a second for the
/// networks we know, so half as long would cost a part in a thousand and save little, and twice as long is more than one likes to lose.
const EVERY: Duration = Duration::from_secs(300);

/// Writes a job's checkpoints, one at a time, while it goes on.
pub(crate) struct Keeper {
    shelf: Arc<Mutex<Shelf>>,
    /// Held until the last checkpoint is written, also of a job that was dropped.
    kept: Arc<Kept>,
    job: JobNote,
    maker: Maker,
    /// Steps from one to the next.
    every: Option<u64>,
    events: Events,
    last: Instant,
    writing: Option<JoinHandle<Option<PathBuf>>>,
    /// The last that was written.
    newest: Option<PathBuf>,
}

/// Where a job's checkpoints go, and when they are due.
pub(super) struct Place {
    pub(super) shelf: Shelf,
    pub(super) kept: Arc<Kept>,
    /// Steps from one to the next.
    pub(super) every: Option<u64>,
}

impl Keeper {
    pub(super) fn new(place: Place, job: JobNote, maker: Maker, events: &Events) -> Self {
        Self {
            shelf: Arc::new(Mutex::new(place.shelf)),
            kept: place.kept,
            job,
            maker,
            every: place.every,
            events: Arc::clone(events),
            last: Instant::now(),
            writing: None,
            newest: None,
        }
    }

    /// Whether a checkpoint is due after so many steps of the job.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        match self.every {
            Some(every) => step.is_multiple_of(every.max(1)),
            None => self.last.elapsed() >= EVERY,
        }
    }

    /// Begins to write a checkpoint, once the one before it is written. What becomes of it is an event; a disk that is full ends no job.
    pub(crate) async fn save(
        &mut self,
        situation: Situation,
        suffix: SuffixState,
        bad: Vec<(Part, usize)>,
        best: Option<KeptEpoch>,
    ) {
        self.settle().await;
        self.last = Instant::now();
        let note = Note::new(self.job.clone(), self.maker.clone(), situation, &suffix);
        let snapshot = Snapshot { note, suffix, bad };
        let (shelf, events) = (Arc::clone(&self.shelf), Arc::clone(&self.events));
        let kept = Arc::clone(&self.kept);
        let write = move || {
            let written = write(&shelf, &events, &snapshot, best.as_ref());
            drop(kept);
            written
        };
        self.writing = Some(tokio::task::spawn_blocking(write));
    }

    /// Waits until what is being written is. The newest checkpoint.
    pub(crate) async fn settle(&mut self) -> Option<PathBuf> {
        if let Some(writing) = self.writing.take()
            && let Ok(Some(path)) = writing.await
        {
            self.newest = Some(path);
        }
        self.newest.clone()
    }
}

fn write(
    shelf: &Mutex<Shelf>,
    events: &Events,
    snapshot: &Snapshot,
    best: Option<&KeptEpoch>,
) -> Option<PathBuf> {
    let (started, progress) = (Instant::now(), snapshot.note.at.progress);
    let (file, bytes, error) = match shelf.lock().save(snapshot, best) {
        Ok((path, bytes)) => (path, bytes, None),
        Err((path, error)) => (path, 0, Some(error.to_string())),
    };
    let written = error.is_none().then(|| file.clone());
    events(Event::Checkpoint {
        epoch: progress.epoch,
        steps: progress.step,
        file,
        bytes,
        seconds: started.elapsed().as_secs_f64(),
        error,
    });
    written
}
