use super::batches::{FeedPlan, Part};
use super::{BadSamples, Steering};
use crate::{Received, TrainerError};
use frostline_client::{Fetcher, Hosts, Samples, Source, Transfer};
use frostline_compute::Targets;
use frostline_rows::{
    BatchRequest, BatchRows, FetchedBatch, Prefetch, PrefetchLimits, Requests, ReservedMemory, RowSource,
};
use frostline_wire::ObjectInfo;
use std::sync::Arc;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// A batch ready for the engine. Dropping it releases the memory reservation.
pub(crate) struct FeedBatch {
    /// `None` if all samples of the batch are bad.
    pub(crate) rows: Option<BatchRows>,
    /// Indices of the samples within the part.
    pub(crate) indices: Vec<usize>,
    pub(crate) targets: Targets,
    /// The source that the batch was requested from.
    pub(crate) source: Arc<Source>,
    /// Statistics of the transfer.
    pub(crate) transfer: Transfer,
    /// Counts the bytes of this batch's epoch.
    pub(crate) epoch: EpochBytes,
    _memory: ReservedMemory,
    /// Set with a feature cache. The next pass over the part waits until all tokens are dropped, to find the
    /// features of this pass.
    _pass_token: Option<TaskTrackerToken>,
}

/// Hosts with separate byte counters for the training and validation of an epoch.
#[derive(Clone)]
pub(crate) struct EpochBytes {
    training: Hosts,
    validation: Hosts,
}

impl EpochBytes {
    fn new(hosts: &Hosts) -> Self {
        Self {
            training: hosts.metered(),
            validation: hosts.metered(),
        }
    }

    fn hosts_of(&self, part: Part) -> &Hosts {
        match part {
            Part::Train => &self.training,
            Part::Validation => &self.validation,
        }
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> Received {
        Received {
            training: self.training.bytes_received(),
            validation: self.validation.bytes_received(),
            ..Received::default()
        }
    }
}

/// Prefetched batches in order. Dropping the feed cancels all fetches.
pub(crate) struct Feed {
    batches: Prefetch<FeedBatch, TrainerError>,
    /// The next batch, if it was peeked at.
    peeked: Option<FeedBatch>,
}

impl Feed {
    /// Starts to fetch batches in the background.
    pub(crate) fn start(
        plan: FeedPlan,
        fetcher: Fetcher,
        steering: Arc<Steering>,
        hosts: Hosts,
        bad: Arc<BadSamples>,
    ) -> Result<Self, TrainerError> {
        plan.check_memory(&steering.current())?;
        let source = RowSource {
            fetcher: Some(fetcher),
            cache: plan.features.clone(),
        };
        let limits = PrefetchLimits {
            batches: plan.ahead,
            bytes: plan.memory_bytes,
        };
        let batches = Prefetch::start(source, limits, |requests| async move {
            let driver = FeedDriver {
                plan: Arc::new(plan),
                steering,
                bad,
                requests,
            };
            // The consumer notices that the batches end.
            let _ = driver.run(hosts).await;
        });
        Ok(Self {
            batches,
            peeked: None,
        })
    }

    /// Waits for the next batch without removing it.
    pub(crate) async fn peek(&mut self) -> Result<&FeedBatch, TrainerError> {
        let batch = self.next().await?;
        Ok(self.peeked.insert(batch))
    }

    /// Waits for the next batch.
    pub(crate) async fn next(&mut self) -> Result<FeedBatch, TrainerError> {
        if let Some(batch) = self.peeked.take() {
            return Ok(batch);
        }
        let ended = TrainerError::Ended { part: "pipeline" };
        self.batches.next().await.unwrap_or(Err(ended))
    }
}

struct FeedDriver {
    plan: Arc<FeedPlan>,
    steering: Arc<Steering>,
    bad: Arc<BadSamples>,
    requests: Requests<FeedBatch, TrainerError>,
}

impl FeedDriver {
    async fn run(self, hosts: Hosts) -> Result<(), TrainerError> {
        let mut earlier = [TaskTracker::new(), TaskTracker::new()];
        for epoch in self.plan.first_epoch..=self.plan.epochs {
            let hosts = EpochBytes::new(&hosts);
            for (part, earlier) in [Part::Train, Part::Validation].into_iter().zip(&mut earlier) {
                if part == Part::Train && epoch == 0 && !self.plan.initial_train_pass {
                    continue;
                }
                // The next pass must know all samples found bad and all features cached in the last one.
                earlier.close();
                earlier.wait().await;
                *earlier = TaskTracker::new();
                self.pass(epoch, part, &hosts, earlier).await?;
            }
        }
        Ok(())
    }

    /// Starts the fetches for a pass over `part`. Each waits for a prefetch slot and for memory.
    async fn pass(
        &self,
        epoch: u32,
        part: Part,
        hosts: &EpochBytes,
        tracker: &TaskTracker,
    ) -> Result<(), TrainerError> {
        if let Some(cache) = &self.plan.features {
            cache.refresh().await?;
        }
        let order = self.plan.order(epoch, part).await?;
        let draws = self.plan.earlier_draws(&order, part);
        let batches = order.chunks(self.plan.batch).zip(draws.chunks(self.plan.batch));
        for (indices, draws) in batches.skip(self.plan.batches_to_skip(epoch, part)) {
            let Some(place) = self.requests.place().await else {
                return Ok(());
            };
            let good = indices
                .iter()
                .zip(draws)
                .map(|(index, earlier)| (*index as usize, *earlier))
                .filter(|(index, _)| !self.bad.contains(part, *index));
            let mut good: Vec<(usize, u32)> = good.collect();
            // Samples with the same view are fetched together.
            good.sort_by_key(|(_, earlier)| *earlier);
            let source = self.steering.next(part);
            let parts = self.parts(&good, &source, epoch, part);
            let batch = RequestedBatch {
                part,
                source: parts.first().map_or(source, |(source, _)| Arc::clone(source)),
                indices: good.into_iter().map(|(index, _)| index).collect(),
                epoch: hosts.clone(),
                pass_token: tracker.token(),
            };
            let request = BatchRequest {
                hosts: hosts.hosts_of(part).clone(),
                parts,
                repeats: part == Part::Validation || self.plan.views.repeat(),
            };
            let plan = Arc::clone(&self.plan);
            let bad = Arc::clone(&self.bad);
            place
                .fetch(request, move |fetched, memory| {
                    batch.finish(fetched, memory, &plan, &bad)
                })
                .await;
        }
        Ok(())
    }

    /// Groups samples by view. `good` contains indices with the number of earlier draws, sorted by that number.
    fn parts(
        &self,
        good: &[(usize, u32)],
        source: &Arc<Source>,
        epoch: u32,
        part: Part,
    ) -> Vec<(Arc<Source>, Arc<[ObjectInfo]>)> {
        let all = self.plan.samples(part);
        let groups = good.chunk_by(|left, right| left.1 == right.1);
        groups
            .filter_map(|group| {
                let (_, earlier) = *group.first()?;
                let samples = group.iter().filter_map(|(index, _)| all.get(*index));
                Some((
                    self.plan.augmented(source, epoch, earlier, part),
                    samples.collect(),
                ))
            })
            .collect()
    }
}

/// A batch in flight.
struct RequestedBatch {
    part: Part,
    source: Arc<Source>,
    /// Indices of the requested samples within the part.
    indices: Vec<usize>,
    epoch: EpochBytes,
    pass_token: TaskTrackerToken,
}

impl RequestedBatch {
    /// Records the bad samples and adds the targets of the others.
    fn finish(
        self,
        fetched: FetchedBatch,
        memory: ReservedMemory,
        plan: &FeedPlan,
        bad: &BadSamples,
    ) -> Result<FeedBatch, TrainerError> {
        let samples = plan.samples(self.part);
        for (position, error) in &fetched.bad {
            if let Some(index) = self.indices.get(*position)
                && let Some(sample) = samples.get(*index)
            {
                bad.record(self.part, *index, &sample, error)?;
            }
        }
        let indices = fetched.indices.iter();
        let indices = indices.filter_map(|position| self.indices.get(*position).copied());
        let indices: Vec<usize> = indices.collect();
        Ok(FeedBatch {
            rows: fetched.rows,
            targets: targets(samples, &indices),
            indices,
            source: self.source,
            transfer: fetched.transfer,
            epoch: self.epoch,
            _memory: memory,
            _pass_token: plan.features.is_some().then_some(self.pass_token),
        })
    }
}

/// Collects the targets of the samples with these indices.
fn targets(samples: &Samples, indices: &[usize]) -> Targets {
    let values = indices.iter().filter_map(|index| samples.values(*index));
    match values.clone().next() {
        Some(first) => Targets::Values {
            width: first.len(),
            values: values.flatten().copied().collect(),
        },
        None => {
            let classes = indices.iter().filter_map(|index| samples.label(*index));
            Targets::Classes(classes.map(i64::from).collect())
        }
    }
}
