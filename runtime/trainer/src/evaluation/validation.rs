use crate::evaluation::Predictions;
use crate::pipeline::{BadSamples, Feed, FeedPlan, Part};
use crate::{Event, Events, Quality, Received, TrainerError, blocking};
use frostline_compute::Dedicated;
use frostline_rows::BatchRows;
use frostline_tensor::Tensor;
use frostline_wire::Split;
use std::sync::Arc;

/// Result of a pass over the validation samples.
pub(crate) struct Validation {
    pub(crate) quality: Quality,
    /// Predictions for the samples that were used, in order.
    pub(crate) predictions: Predictions,
    /// Number of samples with cached features.
    pub(crate) cached: usize,
    /// Data received during the epoch.
    pub(crate) received: Received,
}

impl Validation {
    /// Predicts the validation batches of `plan`, which `feed` delivers next, and compares predictions with
    /// labels. `predict` computes outputs `[rows, outputs]` from the activations at a split.
    ///
    /// # Errors
    /// Returns [`TrainerError::AllBad`] if no sample could be used, or the error of the feed or the engine.
    pub(crate) async fn run<T: Send + 'static>(
        plan: &FeedPlan,
        feed: &mut Feed,
        bad: &BadSamples,
        model: &Dedicated<T>,
        predict: fn(&mut T, &Split, BatchRows) -> Result<Tensor, TrainerError>,
        events: &Events,
    ) -> Result<Self, TrainerError> {
        let mut predictions = Predictions::new(plan.task, Arc::clone(&plan.validation));
        let mut received = Received::default();
        let mut cached = 0;
        for _ in 0..plan.batches(Part::Validation) {
            let batch = &mut feed.next().await?;
            received = batch.epoch.received();
            let Some(rows) = batch.rows.take() else { continue };
            let split = batch.source.split.clone();
            cached += rows.cached_count();
            let outputs = model.run(move |model| predict(model, &split, rows)).await?;
            predictions.add(&batch.indices, &outputs, &batch.targets);
            events(Event::Progress {
                images: predictions.len() as u64,
                total: plan.validation.len() as u64,
            });
        }
        if predictions.len() == 0 {
            return Err(bad.nothing_left(Part::Validation, plan.validation.len()));
        }
        let (quality, predictions) = blocking(move || Ok((predictions.quality(), predictions))).await?;
        Ok(Self {
            quality,
            predictions,
            cached,
            received,
        })
    }
}
