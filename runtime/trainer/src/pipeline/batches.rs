use crate::recipe::Views;
use crate::{Sampling, TrainerError, blocking};
use frostline_client::{Purpose, Samples, Source, Task, Weight, balanced_order, order};
use frostline_rows::RowCache;
use std::sync::Arc;

/// Training or validation samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Train,
    Validation,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Validation => "validation",
        }
    }
}

/// The batches of a job in order: validation for the baseline, then shuffled training batches and validation
/// in every epoch.
#[derive(Debug, Clone)]
pub(crate) struct FeedPlan {
    pub(crate) task: Task,
    pub(crate) train: Arc<Samples>,
    pub(crate) validation: Arc<Samples>,
    /// Largest possible batch of training samples and of validation samples.
    pub(crate) largest_batches: [Weight; 2],
    /// The first epoch. Epoch 0 consists of validation for the baseline.
    pub(crate) first_epoch: u32,
    /// Training batches of the first epoch to skip after a resume.
    pub(crate) skip: usize,
    /// True if epoch 0 also fetches the training samples, unshuffled.
    pub(crate) initial_train_pass: bool,
    /// The last epoch.
    pub(crate) epochs: u32,
    pub(crate) batch: usize,
    pub(crate) seed: u64,
    /// Method of drawing training samples.
    pub(crate) sampling: Sampling,
    /// Augmentation of the training samples in each epoch.
    pub(crate) views: Views,
    /// Number of batches to fetch ahead.
    pub(crate) ahead: usize,
    /// Memory limit in bytes. It applies to all batches in total.
    pub(crate) memory_bytes: u64,
    /// The feature cache. If `None`, each epoch fetches all samples.
    pub(crate) features: Option<Arc<RowCache>>,
}

impl FeedPlan {
    /// Returns a plan for classes with 0 epochs, one batch ahead, no memory limit and no cache. Reads the
    /// sizes of all samples.
    pub(crate) fn new(train: Arc<Samples>, validation: Arc<Samples>, batch: usize) -> Self {
        Self {
            task: Task::Classes,
            largest_batches: [&train, &validation].map(|samples| Weight {
                samples: samples.len().min(batch) as u64,
                objects: samples.largest(batch),
            }),
            train,
            validation,
            first_epoch: 0,
            skip: 0,
            initial_train_pass: false,
            epochs: 0,
            batch,
            seed: 0,
            sampling: Sampling::Shuffle,
            views: Views::default(),
            ahead: 1,
            memory_bytes: u64::MAX,
            features: None,
        }
    }

    /// Returns the plan with other samples.
    pub(crate) fn with_samples(self, train: Arc<Samples>, validation: Arc<Samples>) -> Self {
        let new = Self::new(train, validation, self.batch);
        Self {
            train: new.train,
            validation: new.validation,
            largest_batches: new.largest_batches,
            ..self
        }
    }

    /// Number of batches of `part` per epoch.
    pub(crate) fn batches(&self, part: Part) -> usize {
        self.samples(part).len().div_ceil(self.batch)
    }

    /// Batches to skip at the start of a pass.
    pub(super) fn batches_to_skip(&self, epoch: u32, part: Part) -> usize {
        if epoch == self.first_epoch && part == Part::Train {
            self.skip
        } else {
            0
        }
    }

    pub(crate) fn samples(&self, part: Part) -> &Arc<Samples> {
        match part {
            Part::Train => &self.train,
            Part::Validation => &self.validation,
        }
    }

    /// Returns the indices of the samples of `part` in the order of `epoch`.
    pub(super) async fn order(&self, epoch: u32, part: Part) -> Result<Vec<u32>, TrainerError> {
        let count = self.samples(part).len();
        let seed = self.seed;
        match part {
            Part::Train if epoch == 0 => Ok((0..count as u32).collect()),
            Part::Train => {
                let samples = Arc::clone(&self.train);
                let sampling = self.sampling;
                blocking(move || {
                    Ok(match sampling {
                        Sampling::Shuffle => order(count, seed, Purpose::Epoch(epoch)),
                        Sampling::Balanced => balanced_order(&samples, seed, Purpose::Epoch(epoch)),
                    })
                })
                .await
            }
            Part::Validation => Ok((0..count as u32).collect()),
        }
    }

    /// Returns for each entry of `order` how often the sample was drawn before in the epoch, modulo the number of
    /// views. Returns 0 without augmentation.
    pub(super) fn earlier_draws(&self, order: &[u32], part: Part) -> Vec<u32> {
        if part == Part::Validation || self.views.augmentation.is_none() {
            return vec![0; order.len()];
        }
        let mut drawn = vec![0_u32; self.train.len()];
        let different = self.views.different.unwrap_or(u32::MAX).max(1);
        order
            .iter()
            .map(|index| match drawn.get_mut(*index as usize) {
                Some(drawn) => std::mem::replace(drawn, (*drawn + 1) % different),
                None => 0,
            })
            .collect()
    }

    /// Applies the augmentation of `epoch` to training samples that were drawn `earlier` times before. Validation
    /// samples are never augmented.
    pub(super) fn augmented(
        &self,
        source: &Arc<Source>,
        epoch: u32,
        earlier: u32,
        part: Part,
    ) -> Arc<Source> {
        match part {
            Part::Train => match self.views.for_draw(epoch, earlier) {
                None => Arc::clone(source),
                view => Arc::new(Source {
                    view,
                    ..Source::clone(source)
                }),
            },
            Part::Validation => Arc::clone(source),
        }
    }

    /// Bytes of the largest possible batch from `source`.
    pub(crate) fn largest_batch(&self, source: &Source) -> u64 {
        let [train, validation] = self.largest_batches.map(|weight| source.batch_bytes(weight));
        train.max(validation)
    }

    /// Checks that two batches fit in memory. Otherwise the next batch could not be fetched during a training
    /// step.
    ///
    /// # Errors
    /// Returns [`TrainerError::Memory`] if they do not fit.
    pub(crate) fn check_memory(&self, source: &Source) -> Result<(), TrainerError> {
        let needed = self.largest_batch(source);
        if needed.saturating_mul(2) <= self.memory_bytes {
            return Ok(());
        }
        let batch = self.batch;
        let limit = self.memory_bytes;
        Err(TrainerError::Memory {
            batch,
            needed,
            batches: 2,
            limit,
            split: source.split.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::Augmentation;
    use frostline_wire::{ObjectInfo, SampleRef};

    #[tokio::test]
    async fn each_draw_of_a_sample_has_another_view() {
        let sample = |index: u32| {
            let object = ObjectInfo {
                sample: SampleRef::new(index.to_string()),
                size: 1,
                label: None,
                changed: None,
            };
            // Sample 0 is the only one of its class.
            (object, u32::from(index > 0))
        };
        let samples: Arc<Samples> = Arc::new((0..20).map(sample).collect());
        let mut plan = FeedPlan {
            sampling: Sampling::Balanced,
            views: Views {
                augmentation: Augmentation {
                    hflip: 0.5,
                    ..Augmentation::default()
                },
                ..Views::default()
            },
            ..FeedPlan::new(Arc::clone(&samples), samples, 8)
        };
        let order = plan.order(1, Part::Train).await.unwrap();
        let draws = plan.earlier_draws(&order, Part::Train);
        let of_rare = order.iter().zip(&draws).filter(|(index, _)| **index == 0);
        let of_rare: Vec<u32> = of_rare.map(|(_, earlier)| *earlier).collect();
        assert!(of_rare.len() > 4, "{order:?}");
        assert!(of_rare.iter().copied().eq(0..of_rare.len() as u32));
        plan.views.different = Some(1);
        assert_eq!(plan.earlier_draws(&order, Part::Train), [0; 20]);
        plan.views = Views::default();
        assert_eq!(plan.earlier_draws(&order, Part::Train), [0; 20]);
    }
}
