//! Epochs and phases of a job.

use super::context::JobContext;
use super::run::{RunParts, TrainingRun};
use super::unfreeze::Phase;
use crate::checkpoint::Progress;
use crate::features::report_problems;
use crate::pipeline::{FeedPlan, Steering};
use crate::setup::{Prepared, unfreeze};
use crate::{Event, Job, TrainerError};
use frostline_quantization::WeightBits;
use std::sync::Arc;

/// A job during training.
pub(crate) struct TrainingLoop<'a> {
    pub(super) context: JobContext<'a>,
    pub(super) prepared: Prepared,
    pub(super) run: TrainingRun,
    /// Index of the current phase.
    pub(super) phase: usize,
}

impl TrainingLoop<'_> {
    /// Trains the remaining epochs.
    pub(super) async fn epochs(&mut self) -> Result<(), TrainerError> {
        for (place, phase) in self.context.job.phases().iter().enumerate().skip(self.phase) {
            if place > self.phase {
                if self.check_early_stop() {
                    return Ok(());
                }
                self.unfreeze(phase).await?;
                self.phase = place;
            }
            for epoch in self.run.record.progress.epoch..=phase.last_epoch {
                // A resumed job may already have reached the limit.
                if self.run.record.progress.batch == 0 && self.check_early_stop() {
                    return Ok(());
                }
                self.run.epoch(epoch).await?;
            }
        }
        Ok(())
    }

    /// Reports problems of the feature cache.
    pub(super) fn report_cache_problems(&self) {
        if let Some(features) = &self.prepared.data.feed.features {
            report_problems(features, self.context.events);
        }
    }

    /// Returns true if the best epoch is older than the configured number of epochs, and emits an event in this case.
    fn check_early_stop(&self) -> bool {
        let (Some(patience), Some(best)) = (self.context.job.spec.patience, self.run.record.best.as_ref())
        else {
            return false;
        };
        let best = best.note.epoch;
        let epoch = self.run.record.progress.epoch.saturating_sub(1);
        let stops = epoch.saturating_sub(best) >= patience;
        if stops {
            (self.context.events)(Event::EarlyStop { epoch, best });
        }
        stops
    }

    /// Starts a phase that trains more layers.
    async fn unfreeze(&mut self, phase: &Phase) -> Result<(), TrainerError> {
        (self.context.events)(Event::Unfreeze {
            epoch: phase.first_epoch,
            freeze: phase.freeze.clone(),
        });
        let weights = self.run.suffix.run(|suffix| suffix.weights()).await?;
        let last = self.run.steering.current();
        let job = self.context.job.in_phase(phase);
        let prepared = unfreeze(
            &job,
            &self.prepared,
            &last.split,
            weights,
            self.context.hosts,
            self.context.events,
        );
        // The cache is replaced together with the phase.
        self.report_cache_problems();
        // Boxed, because the future is large and deeply nested.
        let prepared = self.context.cancel.run_until_cancelled(Box::pin(prepared)).await;
        self.prepared = prepared.unwrap_or(Err(TrainerError::Cancelled))?;
        let layers = self.prepared.suffix.clone();
        let from = Progress::at(phase.first_epoch, 0);
        let parts = parts(self.context.job, &mut self.prepared, phase, from)?;
        self.run.unfreeze(parts, layers).await
    }
}

/// Returns the parts of the run for the epochs of a phase, starting at the epoch and the batch of `from`. Epoch 0 is
/// the evaluation of the initial model.
pub(super) fn parts(
    job: &Job,
    prepared: &mut Prepared,
    phase: &Phase,
    from: Progress,
) -> Result<RunParts, TrainerError> {
    let chosen = &prepared.chosen;
    let source = prepared
        .offer
        .source_at(&chosen.split, chosen.encoding, chosen.flow.request_samples)?;
    Ok(RunParts {
        feed: FeedPlan {
            first_epoch: from.epoch,
            skip: from.batch,
            epochs: phase.last_epoch,
            ahead: chosen.flow.ahead,
            ..prepared.data.feed.clone()
        },
        steering: Steering::fixed(source),
        window: chosen.flow.window,
        offer: Arc::clone(&prepared.offer),
        watch: prepared.watch.take().filter(|_| !job.spec.reproducible),
        freeze: phase.freeze.clone(),
        may_saturate: prepared.network.int8 == Some(WeightBits::Eight),
    })
}
