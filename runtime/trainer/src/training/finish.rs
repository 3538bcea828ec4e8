//! Ends a job: selects the weights to write and explains early errors.

use super::export;
use super::results::Results;
use super::run::Best;
use super::training_loop::TrainingLoop;
use crate::checkpoint::{BestNote, SavedEpoch, Weights};
use crate::event::warn;
use crate::model_metadata::{Int8Note, TrainingRecord};
use crate::setup::trained_after;
use crate::{JobResult, Keep, Quality, Received, TrainerError, WrittenModel, model_metadata};
use frostline_client::Samples;
use frostline_graph::Model;
use std::path::PathBuf;
use std::sync::Arc;

/// A job after training, before the model is written.
pub(crate) struct Tuned {
    pub(crate) model: TunedModel,
    /// Samples to measure the written model with.
    pub(crate) test: Arc<Samples>,
    /// Files for the run folder.
    pub(crate) results: Option<Results>,
    /// The error that ended the job early, if there are weights to write.
    pub(crate) ended: Option<TrainerError>,
    /// Result of the job, except for the figures that are only known at the end.
    pub(crate) outcome: JobResult,
}

/// A model to write.
pub(crate) struct TunedModel {
    /// The network before the trained weights are merged.
    headed: Model,
    /// Set if the frozen layers were in int8 during training.
    int8: Option<Int8Note>,
    /// Operator that turns scores into probabilities, as in the original network.
    probabilities: Option<String>,
    record: TrainingRecord,
    weights: Weights,
    /// Files to write the model to: the path requested by the user first, then the run folder's.
    targets: Vec<PathBuf>,
}

impl TunedModel {
    /// Writes the model to all targets. Returns the model and the result for each target.
    pub(crate) fn write(mut self) -> Result<(Model, Vec<Result<(), TrainerError>>), TrainerError> {
        model_metadata::write(&mut self.headed, &self.record);
        if let Some(note) = &self.int8 {
            note.write(&mut self.headed);
        }
        let mut model = self.headed.merge(&self.weights)?.without_joints()?;
        if let Some(operator) = &self.probabilities {
            model = model.with_probabilities(operator)?;
        }
        let written = self
            .targets
            .iter()
            .map(|out| export::write(&model, out))
            .collect();
        Ok((model, written))
    }
}

impl TrainingLoop<'_> {
    /// Trains the remaining epochs, or until an error ends the job.
    ///
    /// # Errors
    /// Returns the error that ended the job if there is no model to write.
    pub(crate) async fn run(mut self) -> Result<Tuned, TrainerError> {
        let ended = self.epochs().await;
        self.report_cache_problems();
        let ended = match ended {
            Ok(()) => None,
            Err(error) => Some(self.end_early(error).await?),
        };
        let (chosen, is_best, ended) = match (self.choose(ended.as_ref()).await, ended) {
            (Ok((chosen, is_best)), ended) => (chosen, is_best, ended),
            (Err(error), None | Some(TrainerError::Cancelled)) => return Err(error),
            // The first error explains the second.
            (Err(_), Some(error)) => return Err(self.after_checkpoint(error).await),
        };
        if let Some(checkpoint_writer) = self.run.record.checkpoint_writer.as_mut() {
            checkpoint_writer.settle().await;
        }
        let ended = ended.map(|error| self.with_written_model(error, chosen.note, is_best));
        Ok(self.tuned(chosen, ended))
    }

    /// Selects the weights to write: the best epoch's, for which the second value is true, or the current ones.
    /// `ended` is the error that ended the job early, if any.
    async fn choose(&mut self, ended: Option<&TrainerError>) -> Result<(Best, bool), TrainerError> {
        let diverged = matches!(ended, Some(TrainerError::Diverged { .. }));
        let best = self.run.record.best.take();
        let best = best.filter(|_| diverged || self.context.job.spec.keep == Keep::Best);
        let is_best = best.is_some();
        let chosen = match best {
            Some(best) => best,
            None => Best {
                note: self.current_note(),
                saved: SavedEpoch {
                    weights: Arc::new(self.run.suffix.run(|suffix| suffix.weights()).await?),
                    predictions: self.run.record.predictions.take(),
                },
            },
        };
        let context = self.context;
        let complete = ended.is_none() || diverged;
        if context.job.run.is_some() && chosen.saved.predictions.is_none() && complete {
            let message = "the run's folder is incomplete: the validation predictions of the written model are lost; evaluate \
                           the model to compute them again";
            warn(context.events, message);
        }
        Ok((chosen, is_best))
    }

    fn tuned(self, chosen: Best, ended: Option<TrainerError>) -> Tuned {
        let Best { note, saved } = chosen;
        let prepared = self.prepared;
        let job = self.context.job;
        let split = self.run.steering.current().split.clone();
        let targets = job.output_paths();
        let results = saved
            .predictions
            .and_then(|predictions| Results::of_job(job, predictions, prepared.data.classes.clone()));
        Tuned {
            results,
            test: prepared.data.test,
            model: TunedModel {
                record: TrainingRecord {
                    input: prepared.offer.input(&job.guest.name, &split),
                    task: prepared.data.feed.task,
                    names: prepared.data.classes,
                    division: prepared.data.division,
                    trained_images: prepared.data.trained_images,
                    trained_after: trained_after(job),
                },
                int8: prepared.network.int8.map(|_| Int8Note::new(note.quality)),
                headed: prepared.network.exported(job.spec.export_prefix).clone(),
                probabilities: prepared.network.probabilities,
                targets: targets.clone(),
                weights: saved.weights,
            },
            outcome: JobResult {
                model: targets.into_iter().next().unwrap_or_default(),
                split,
                epoch: note.epoch,
                validation: note.quality,
                bytes_received: 0,
                received: Received {
                    listing: prepared.data.listed,
                    measuring: prepared.measuring.bytes_received(),
                    ..self.run.received()
                },
                seconds: 0.0,
            },
            ended,
        }
    }

    /// Saves the state of a job ended by `error`. Returns the error if a model can still be written, and
    /// fails with it otherwise.
    async fn end_early(&mut self, error: TrainerError) -> Result<TrainerError, TrainerError> {
        if let TrainerError::Diverged { .. } = error {
            // The last checkpoint precedes the divergence, and the current state is useless.
            return match self.run.record.best {
                Some(_) => Ok(error),
                None => Err(self.after_checkpoint(error).await),
            };
        }
        if self.run.record.progress.step == 0 {
            return Err(self.after_checkpoint(error).await);
        }
        // The original error is more important than a failure of this checkpoint.
        let _ = self.run.save().await;
        Ok(error)
    }

    /// Waits for pending checkpoints, then returns `error`.
    async fn after_checkpoint(&mut self, error: TrainerError) -> TrainerError {
        if let Some(checkpoint_writer) = self.run.record.checkpoint_writer.as_mut() {
            checkpoint_writer.settle().await;
        }
        error
    }

    /// Epoch and quality of the current weights.
    fn current_note(&self) -> BestNote {
        let epoch = self.run.record.progress.epoch.saturating_sub(1);
        let quality = self
            .run
            .record
            .last
            .map(|last| last.quality)
            .or(self.run.record.baseline);
        BestNote {
            epoch,
            quality: quality.unwrap_or(Quality::Classes { accuracy: 0.0 }),
        }
    }

    /// Adds to `error` which model was written.
    fn with_written_model(&self, mut error: TrainerError, note: BestNote, is_best: bool) -> TrainerError {
        let progress = self.run.record.progress;
        let kept = self.written_model(note, is_best);
        match error {
            TrainerError::Diverged {
                kept: ref mut slot, ..
            } => {
                *slot = Some(kept);
                error
            }
            TrainerError::Cancelled => TrainerError::Stopped {
                epoch: progress.epoch,
                step: progress.step,
                kept,
            },
            error => TrainerError::Failed {
                source: Box::new(error),
                kept,
            },
        }
    }

    /// Describes the model written by a job that ended early.
    fn written_model(&self, note: BestNote, is_best: bool) -> WrittenModel {
        let BestNote { epoch, quality } = note;
        let out = self.context.job.output_paths().into_iter().next();
        let out = out.unwrap_or_default();
        let what = match (is_best, self.run.record.progress.batch) {
            (true, _) => format!("of epoch {epoch}, the best so far (validation {quality}),"),
            (false, 0) => format!("of epoch {epoch}"),
            (false, _) => "from mid-epoch".to_owned(),
        };
        WrittenModel {
            epoch,
            validation: quality,
            text: format!("the model {what} was written to {}", out.display()),
        }
    }
}
