use crate::compute::Dedicated;
use crate::pipeline::{BadSamples, Feed, FeedPlan, Part};
use crate::{Received, TrainerError};
use frostline_tensor::Tensor;
use frostline_wire::Split;

/// What became of one pass over the validation samples.
pub(crate) struct Validation {
    /// Share of the samples classified right, 0 to 1.
    pub(crate) accuracy: f64,
    /// Samples that were classified.
    pub(crate) samples: usize,
    /// Bytes received for the epoch until its end.
    pub(crate) received: Received,
}

/// Counts how many rows of a split have the right one of these labels as their class.
type CountCorrect<T> = fn(&mut T, &Split, &Tensor, &[i64]) -> Result<usize, TrainerError>;

impl Validation {
    /// Takes the validation batches of `plan`, which `feed` brings next, and has `model` classify them.
    ///
    /// # Errors
    /// [`TrainerError::AllBad`], and whatever the feed or the engine ends with.
    pub(crate) async fn of<T: Send + 'static>(
        plan: &FeedPlan,
        feed: &mut Feed,
        bad: &BadSamples,
        model: &Dedicated<T>,
        count_correct: CountCorrect<T>,
    ) -> Result<Self, TrainerError> {
        let (mut right, mut samples, mut received) = (0, 0, Received::default());
        for _ in 0..plan.batches(Part::Validation) {
            let batch = &mut feed.next().await?;
            received = batch.epoch.received();
            let Some(rows) = batch.rows.take() else { continue };
            let (split, labels) = (batch.source.split.clone(), std::mem::take(&mut batch.labels));
            samples += labels.len();
            right += model
                .run(move |model| count_correct(model, &split, &rows, &labels))
                .await?;
        }
        if samples == 0 {
            return Err(bad.nothing_left(Part::Validation, plan.validation.len()));
        }
        Ok(Self {
            accuracy: right as f64 / samples as f64,
            samples,
            received,
        })
    }
}
