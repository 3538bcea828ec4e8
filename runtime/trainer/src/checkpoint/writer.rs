//! Writes checkpoints in the background.

use super::checkpoints::{CheckpointFolder, SavedEpoch};
use super::lock::RunLock;
use super::snapshot::{CheckpointNote, Environment, JobNote, Snapshot, TrainingState};
use crate::pipeline::Part;
use crate::{Event, Events};
use frostline_compute::SuffixState;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Default interval between checkpoints. A killed job loses up to five minutes of work. Known networks are
/// written in well under a second, less than 0.4 % of the interval.
const EVERY: Duration = Duration::from_secs(300);

/// Writes a job's checkpoints in the background, one at a time.
pub(crate) struct CheckpointWriter {
    pub(super) checkpoints: Arc<Mutex<CheckpointFolder>>,
    /// Held until the last checkpoint is written, even if the job was dropped.
    pub(super) run_lock: Arc<RunLock>,
    pub(super) job: JobNote,
    pub(super) maker: Environment,
    /// Steps between two checkpoints; `None` uses the default interval.
    pub(super) every: Option<u64>,
    pub(super) events: Events,
    pub(super) last: Instant,
    pub(super) writing: Option<JoinHandle<Option<PathBuf>>>,
    /// Path of the newest checkpoint.
    pub(super) newest: Option<PathBuf>,
}

impl CheckpointWriter {
    /// Returns true if a checkpoint is due after `step` steps of the job.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        match self.every {
            Some(every) => step.is_multiple_of(every.max(1)),
            None => self.last.elapsed() >= EVERY,
        }
    }

    /// Starts writing a checkpoint after the previous one is written. The result is reported as an event; a
    /// full disk does not fail the job.
    #[expect(clippy::disallowed_methods, reason = "trainers have no tenants")]
    pub(crate) async fn save(
        &mut self,
        situation: TrainingState,
        suffix: SuffixState,
        bad: Vec<(Part, usize)>,
        best: Option<SavedEpoch>,
    ) {
        self.settle().await;
        self.last = Instant::now();
        let note = CheckpointNote {
            job: self.job.clone(),
            maker: self.maker.clone(),
            at: situation,
        };
        let snapshot = Snapshot { note, suffix, bad };
        let checkpoints = Arc::clone(&self.checkpoints);
        let events = Arc::clone(&self.events);
        let kept = Arc::clone(&self.run_lock);
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let written = write(&checkpoints, &events, &snapshot, best.as_ref());
            drop(kept);
            written
        }));
    }

    /// Waits for the write in progress and returns the path of the newest checkpoint.
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
    checkpoints: &Mutex<CheckpointFolder>,
    events: &Events,
    snapshot: &Snapshot,
    best: Option<&SavedEpoch>,
) -> Option<PathBuf> {
    let started = Instant::now();
    let progress = snapshot.note.at.progress;
    let (file, bytes, error) = match checkpoints.lock().save(snapshot, best) {
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
