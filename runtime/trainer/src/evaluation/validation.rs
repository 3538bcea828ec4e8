use crate::compute::{Dedicated, blocking};
use crate::evaluation::Predictions;
use crate::pipeline::{BadSamples, BatchRows, Feed, FeedPlan, Part};
use crate::{Event, Events, Quality, Received, TrainerError};
use frostline_tensor::Tensor;
use frostline_wire::Split;
use std::sync::Arc;

/// What became of one pass over the validation samples.
pub(crate) struct Validation {
    pub(crate) quality: Quality,
    /// What was said of each sample that was used, in their order.
    pub(crate) predictions: Predictions,
    /// Samples whose rows were kept.
    pub(crate) kept: usize,
    /// Bytes received for the epoch until its end.
    pub(crate) received: Received,
}

/// What a model makes of the rows of a split, `[rows, outputs]`.
type Predict<T> = fn(&mut T, &Split, BatchRows) -> Result<Tensor, TrainerError>;

/// A model, and how it predicts.
pub(crate) struct Predicting<'a, T> {
    pub(crate) model: &'a Dedicated<T>,
    pub(crate) predict: Predict<T>,
}

impl Validation {
    /// Takes the validation batches of `plan`, which `feed` brings next, and holds what `model` makes of them against what is so.
    ///
    /// # Errors
    /// [`TrainerError::AllBad`], and whatever the feed or the engine ends with.
    pub(crate) async fn run<T: Send + 'static>(
        plan: &FeedPlan,
        feed: &mut Feed,
        bad: &BadSamples,
        Predicting { model, predict }: Predicting<'_, T>,
        events: &Events,
    ) -> Result<Self, TrainerError> {
        let mut predictions = Predictions::new(plan.task, Arc::clone(&plan.validation));
        let (mut received, mut kept) = (Received::default(), 0);
        for _ in 0..plan.batches(Part::Validation) {
            let batch = &mut feed.next().await?;
            received = batch.epoch.received();
            let Some(rows) = batch.rows.take() else { continue };
            let split = batch.source.split.clone();
            kept += rows.cached_count();
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
            kept,
            received,
        })
    }
}
