//! Progress and results of a run.

use crate::Quality;
use crate::checkpoint::{
    BestNote, CheckpointWriter, EpochResult, FoundCheckpoint, LoadedEpoch, Progress, SavedEpoch,
};
use crate::evaluation::Predictions;
use crate::pipeline::{BadSamples, FeedPlan};
use crate::training::context::JobContext;
use std::sync::Arc;

/// Progress and results of a run, and the checkpoints that contain them.
pub(crate) struct RunRecord {
    pub(crate) progress: Progress,
    pub(crate) bad: Arc<BadSamples>,
    /// Quality before the first step.
    pub(crate) baseline: Option<Quality>,
    /// Result of the last complete epoch.
    pub(crate) last: Option<EpochResult>,
    pub(crate) best: Option<Best>,
    /// Validation predictions after the last epoch.
    pub(crate) predictions: Option<Arc<Predictions>>,
    pub(crate) checkpoint_writer: Option<CheckpointWriter>,
}

/// The best epoch so far.
#[derive(Clone)]
pub(crate) struct Best {
    pub(crate) note: BestNote,
    pub(crate) saved: SavedEpoch,
}

impl RunRecord {
    /// Returns the record of a job before its first step.
    pub(crate) fn new(context: JobContext<'_>, checkpoint_writer: Option<CheckpointWriter>) -> Self {
        let on_bad_sample = context.job.spec.on_bad_sample;
        Self {
            progress: Progress::start(),
            bad: Arc::new(BadSamples::new(on_bad_sample, Arc::clone(context.events))),
            baseline: None,
            last: None,
            best: None,
            predictions: None,
            checkpoint_writer,
        }
    }

    /// Returns the record in the checkpoint `found` of a job with the samples of `feed`.
    pub(crate) fn resumed(
        context: JobContext<'_>,
        checkpoint_writer: Option<CheckpointWriter>,
        found: FoundCheckpoint,
        feed: &FeedPlan,
    ) -> Self {
        let note = found.snapshot.note.at;
        let record = Self {
            progress: note.progress,
            baseline: Some(note.baseline),
            last: note.last,
            best: note
                .best
                .zip(found.best)
                .map(|(note, epoch)| Best::loaded(note, epoch, feed)),
            ..Self::new(context, checkpoint_writer)
        };
        record.bad.restore(found.snapshot.bad);
        record
    }
}

impl Best {
    fn loaded(note: BestNote, epoch: LoadedEpoch, feed: &FeedPlan) -> Self {
        let samples = Arc::clone(&feed.validation);
        let predictions = Predictions::of_tensors(feed.task, samples, &epoch.predictions);
        Self {
            note,
            saved: SavedEpoch {
                weights: epoch.weights,
                predictions: predictions.map(Arc::new),
            },
        }
    }
}
