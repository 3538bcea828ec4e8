//! Executes a step of a run, including changes of the split and the check for divergence.

use super::{TrainingRun, at_freeze_cut};
use crate::pipeline::Part;
use crate::{Event, TrainedStep, TrainerError};
use frostline_client::Source;
use frostline_plan::Iteration;
use std::sync::Arc;
use std::time::Instant;

/// Losses above this limit indicate divergence. f32 has no values between 0 and e^-104, so the correct class
/// has probability 0.
const IMPLAUSIBLE_LOSS: f32 = 104.0;

impl TrainingRun {
    /// Trains the batch with this index in the epoch. Returns the mean loss and the number of samples, which
    /// is 0 if all are bad.
    pub(crate) async fn step(&mut self, epoch: u32, index: usize) -> Result<(f32, usize), TrainerError> {
        let asked = Instant::now();
        let batch = &mut self.next().await?;
        let terms = self.steps.terms(epoch, index);
        let Some(rows) = batch.rows.take() else {
            self.suffix.run(move |suffix| suffix.update(&terms)).await?;
            return Ok((0.0, 0));
        };
        let waited = asked.elapsed();
        let targets = batch.targets.clone();
        let count = rows.count();
        let kept = rows.cached_count();
        let source = Arc::clone(&batch.source);
        let split = source.split.clone();
        let loss = self
            .suffix
            .run(move |suffix| {
                at_freeze_cut(suffix, &split, rows, |suffix, activations| {
                    suffix.train(activations, targets, &terms)
                })
            })
            .await?;
        self.record.progress.step += 1;
        let iteration = Iteration {
            waited: waited.as_secs_f64(),
            computed: asked.elapsed().saturating_sub(waited).as_secs_f64(),
            samples: count,
            bytes: batch.transfer.bytes,
            on_host: batch.transfer.on_host(),
        };
        self.epoch.waited_seconds += iteration.waited;
        self.epoch.cached_rows += kept as u64;
        self.epoch.fetched_rows += (count - kept) as u64;
        (self.events)(Event::Step(TrainedStep {
            epoch,
            step: self.record.progress.step,
            loss,
            split: source.split.clone(),
            waited_seconds: iteration.waited,
            computed_seconds: iteration.computed,
            bytes_received: iteration.bytes,
            rows: count as u64,
            cached_rows: kept as u64,
        }));
        if !loss.is_finite() {
            return Err(self.diverged(self.record.progress.step, format!("the loss became {loss}")));
        }
        let progress = &mut self.record.progress;
        let beyond = self.loss_is_bounded && loss > IMPLAUSIBLE_LOSS;
        progress.beyond = beyond.then(|| progress.beyond.unwrap_or(progress.step));
        // A batch with cached rows contains no information about hosts and link.
        if kept == 0 {
            self.reconsider(&source, &iteration).await?;
        }
        Ok((loss, count))
    }

    /// Passes an iteration to the planner, and changes the split if it decides so.
    async fn reconsider(&mut self, source: &Source, iteration: &Iteration) -> Result<(), TrainerError> {
        let epoch = self.phase.plan.batches(Part::Train) as u64;
        let before = epoch * u64::from(self.phase.plan.first_epoch.saturating_sub(1));
        let left = (epoch * u64::from(self.phase.plan.epochs)).saturating_sub(self.record.progress.step);
        let present = self.steering.current();
        let Some(watch) = self.phase.watch.as_mut() else {
            return Ok(());
        };
        // Ignore batches requested before the last change.
        if (&source.split, source.encoding) != (&present.split, present.encoding) {
            return Ok(());
        }
        let left = watch
            .fetching_after(self.record.progress.step.saturating_sub(before))
            .min(left);
        let Some(change) = watch.observe(iteration, left) else {
            return Ok(());
        };
        let next =
            self.phase
                .offer
                .source_at(&change.to.split, change.to.encoding, change.request_samples)?;
        (self.events)(Event::Replan {
            step: self.record.progress.step,
            from: present.split.clone(),
            to: next.split.clone(),
            encoding: next.encoding,
            reason: change.reason,
        });
        watch.start(change.to);
        let split = next.split.clone();
        self.steering.set_source(Arc::new(next));
        self.suffix
            .run(move |suffix| Ok(suffix.prepare_middle(&split)?))
            .await
    }

    /// Fails if the loss of the epoch is implausible and has not recovered, or the epoch is the last.
    pub(super) fn check(&self, loss: f64, last: bool) -> Result<(), TrainerError> {
        if !self.loss_is_bounded
            || loss <= f64::from(IMPLAUSIBLE_LOSS)
            || (self.record.progress.beyond.is_none() && !last)
        {
            return Ok(());
        }
        let step = self.record.progress.beyond.unwrap_or(self.record.progress.step);
        let sign = format!("the mean loss of the epoch is {loss:.3e}, beyond any plausible value");
        Err(self.diverged(step, sign))
    }

    pub(super) fn diverged(&self, step: u64, sign: String) -> TrainerError {
        TrainerError::Diverged {
            step,
            sign,
            learning_rate: self.learning_rate,
            kept: None,
        }
    }
}
