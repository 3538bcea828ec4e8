use crate::compute::blocking;
use crate::features::Features;
use crate::recipe::Views;
use crate::{Sampling, TrainerError};
use frostline_client::{Purpose, Samples, Source, Task, Weight, balanced_order, order};
use std::sync::Arc;

/// Which of the two halves of the data.
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

/// The batches of a job, in the order they are wanted: validation first, for the baseline, then every epoch's training batches,
/// shuffled, and its validation.
#[derive(Debug, Clone)]
pub(crate) struct FeedPlan {
    pub(crate) task: Task,
    pub(crate) train: Arc<Samples>,
    pub(crate) validation: Arc<Samples>,
    /// What the largest batch of each of them can weigh.
    pub(crate) largest: [Weight; 2],
    /// The first epoch; before it only validation, for the baseline, where it is 0.
    pub(crate) first: u32,
    /// Training batches of the first epoch that are behind us: they are left out.
    pub(crate) skip: usize,
    /// Whether training samples come before the first epoch as well, in their own order.
    pub(crate) looks: bool,
    /// The last one.
    pub(crate) epochs: u32,
    pub(crate) batch: usize,
    pub(crate) seed: u64,
    /// How an epoch's training samples are drawn.
    pub(crate) sampling: Sampling,
    /// How they look in each epoch.
    pub(crate) views: Views,
    /// Batches extracted while one is in use.
    pub(crate) ahead: usize,
    /// Bytes all batches may take together.
    pub(crate) memory_bytes: u64,
    /// Where rows are kept and found again; without it all of them are fetched each time.
    pub(crate) features: Option<Arc<Features>>,
}

impl FeedPlan {
    /// Batches of these samples: of classes, no epochs yet, one batch ahead, and memory without a limit. Looks at every sample.
    pub(crate) fn new(train: Arc<Samples>, validation: Arc<Samples>, batch: usize) -> Self {
        let largest = |samples: &Samples| Weight {
            samples: samples.len().min(batch) as u64,
            objects: samples.largest(batch),
        };
        Self {
            task: Task::Classes,
            largest: [largest(&train), largest(&validation)],
            train,
            validation,
            first: 0,
            skip: 0,
            looks: false,
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

    /// Batches of a part, per epoch.
    pub(crate) fn batches(&self, part: Part) -> usize {
        self.samples(part).len().div_ceil(self.batch)
    }

    /// Batches of a pass that are behind us.
    pub(super) fn behind(&self, epoch: u32, part: Part) -> usize {
        if epoch == self.first && part == Part::Train {
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

    /// The samples of `part` in the order of `epoch`.
    pub(super) async fn order(&self, epoch: u32, part: Part) -> Result<Vec<u32>, TrainerError> {
        let (count, seed) = (self.samples(part).len(), self.seed);
        match part {
            Part::Train if epoch == 0 => Ok((0..count as u32).collect()),
            Part::Train => {
                let (samples, sampling) = (Arc::clone(&self.train), self.sampling);
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

    /// `source`, as samples of `part` look in `epoch`: validated is what they are.
    pub(super) fn viewed(&self, source: Arc<Source>, epoch: u32, part: Part) -> Arc<Source> {
        match part {
            Part::Train => match self.views.for_epoch(epoch) {
                None => source,
                view => Arc::new(Source {
                    view,
                    ..Source::clone(&source)
                }),
            },
            Part::Validation => source,
        }
    }

    /// Bytes of the largest batch there can be from `source`.
    pub(crate) fn largest_batch(&self, source: &Source) -> u64 {
        let [train, validation] = self.largest.map(|weight| source.batch_bytes(weight));
        train.max(validation)
    }

    /// Two batches must fit, or nothing could be extracted while one trains.
    ///
    /// # Errors
    /// [`TrainerError::Memory`].
    pub(crate) fn check_memory(&self, source: &Source) -> Result<(), TrainerError> {
        let needed = self.largest_batch(source);
        if needed.saturating_mul(2) <= self.memory_bytes {
            return Ok(());
        }
        let (batch, limit) = (self.batch, self.memory_bytes);
        Err(TrainerError::Memory {
            batch,
            needed,
            batches: 2,
            limit,
            split: source.split.clone(),
        })
    }
}
