use crate::compute::{Dedicated, blocking};
use crate::pipeline::{BadSamples, Feed, FeedPlan, Part, Rows};
use crate::quality::Scores;
use crate::{Quality, Received, TrainerError};
use frostline_tensor::Tensor;
use frostline_wire::Split;

/// What became of one pass over the validation samples.
pub(crate) struct Validation {
    pub(crate) quality: Quality,
    /// Samples that were used.
    pub(crate) samples: usize,
    /// Of these, samples whose rows were kept.
    pub(crate) kept: usize,
    /// Bytes received for the epoch until its end.
    pub(crate) received: Received,
}

/// What a model makes of the rows of a split, `[rows, outputs]`.
type Predict<T> = fn(&mut T, &Split, Rows) -> Result<Tensor, TrainerError>;

impl Validation {
    /// Takes the validation batches of `plan`, which `feed` brings next, and holds what `model` makes of them against what is so.
    ///
    /// # Errors
    /// [`TrainerError::AllBad`], and whatever the feed or the engine ends with.
    pub(crate) async fn of<T: Send + 'static>(
        plan: &FeedPlan,
        feed: &mut Feed,
        bad: &BadSamples,
        model: &Dedicated<T>,
        predict: Predict<T>,
    ) -> Result<Self, TrainerError> {
        let (mut scores, mut received, mut kept) = (Scores::new(plan.task), Received::default(), 0);
        for _ in 0..plan.batches(Part::Validation) {
            let batch = &mut feed.next().await?;
            received = batch.epoch.received();
            let Some(rows) = batch.rows.take() else { continue };
            let split = batch.source.split.clone();
            kept += rows.kept();
            let outputs = model.run(move |model| predict(model, &split, rows)).await?;
            scores.add(&outputs, &batch.targets);
        }
        let samples = scores.samples();
        if samples == 0 {
            return Err(bad.nothing_left(Part::Validation, plan.validation.len()));
        }
        Ok(Self {
            quality: blocking(move || Ok(scores.quality())).await?,
            samples,
            kept,
            received,
        })
    }
}
