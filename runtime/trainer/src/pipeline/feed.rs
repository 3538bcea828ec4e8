use super::batches::{FeedPlan, Part};
use super::rows::{BatchRows, Origin};
use super::{BadSamples, Steering};
use crate::evaluation::Targets;
use crate::features::Features;
use crate::{Received, TrainerError};
use frostline_client::{Fetched, Fetcher, Hosts, Samples, Source, Transfer, Weight};
use frostline_features::RowKey;
use frostline_tensor::Tensor;
use frostline_wire::ObjectInfo;
use futures::TryFutureExt;
use futures::future::try_join_all;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::{AbortOnDropHandle, TaskTracker, task_tracker::TaskTrackerToken};

/// A batch ready for the engine. Dropping it releases the memory reservation.
pub(crate) struct Batch {
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
    _memory: Option<OwnedSemaphorePermit>,
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

type Fetching = AbortOnDropHandle<Result<Batch, TrainerError>>;

/// Prefetched batches in order. Dropping the feed cancels all fetches.
pub(crate) struct Feed {
    batches: mpsc::Receiver<Fetching>,
    _driver: AbortOnDropHandle<Result<(), TrainerError>>,
}

/// Unit of memory reservations, in bytes. A semaphore can only acquire up to 2^32 permits.
const RESERVATION_UNIT: u64 = 4096;

impl Feed {
    /// Starts to fetch batches in the background.
    ///
    /// # Errors
    /// Returns [`TrainerError::Memory`] if the memory limit is too small for two batches.
    pub(crate) fn start(
        plan: FeedPlan,
        fetcher: Fetcher,
        steering: Arc<Steering>,
        hosts: Hosts,
        bad: Arc<BadSamples>,
    ) -> Result<Self, TrainerError> {
        plan.check_memory(&steering.current())?;
        let (sender, batches) = mpsc::channel(plan.ahead.max(1));
        let pieces = u32::try_from(plan.memory_bytes / RESERVATION_UNIT).unwrap_or(u32::MAX);
        let pieces = pieces.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let memory = Arc::new(Semaphore::new(pieces as usize));
        let driver = Driver {
            plan,
            fetcher,
            steering,
            bad,
            memory,
            pieces,
            sender,
        };
        let driver = AbortOnDropHandle::new(tokio::spawn(driver.run(hosts)));
        Ok(Self {
            batches,
            _driver: driver,
        })
    }

    /// Waits for the next batch.
    ///
    /// # Errors
    /// Returns the error of the fetch.
    pub(crate) async fn next(&mut self) -> Result<Batch, TrainerError> {
        let ended = |_| TrainerError::Ended { part: "pipeline" };
        let fetching = self
            .batches
            .recv()
            .await
            .ok_or(TrainerError::Ended { part: "pipeline" })?;
        fetching.await.map_err(ended)?
    }
}

struct Driver {
    plan: FeedPlan,
    fetcher: Fetcher,
    steering: Arc<Steering>,
    bad: Arc<BadSamples>,
    memory: Arc<Semaphore>,
    /// Number of pieces in total.
    pieces: u32,
    sender: mpsc::Sender<Fetching>,
}

impl Driver {
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
        let ended = || TrainerError::Ended { part: "pipeline" };
        let features = self.plan.features.as_ref();
        if let Some(features) = features {
            features.refresh().await?;
        }
        let order = self.plan.order(epoch, part).await?;
        let draws = self.plan.earlier_draws(&order, part);
        let batches = order.chunks(self.plan.batch).zip(draws.chunks(self.plan.batch));
        for (indices, draws) in batches.skip(self.plan.batches_to_skip(epoch, part)) {
            let place = self.sender.reserve().await.map_err(|_| ended())?;
            let good = indices
                .iter()
                .zip(draws)
                .map(|(index, earlier)| (*index as usize, *earlier))
                .filter(|(index, _)| !self.bad.contains(part, *index));
            let mut good: Vec<(usize, u32)> = good.collect();
            // Samples with the same view are fetched together.
            good.sort_by_key(|(_, earlier)| *earlier);
            let source = self.steering.next(part);
            let augmented = |earlier| self.plan.augmented(&source, epoch, earlier, part);
            let views = views(&good, augmented);
            let source = views
                .first()
                .map_or_else(|| Arc::clone(&source), |(_, source)| Arc::clone(source));
            let good: Vec<usize> = good.into_iter().map(|(index, _)| index).collect();
            let all = self.plan.samples(part);
            let samples: Arc<[ObjectInfo]> = good.iter().filter_map(|index| all.get(*index)).collect();
            let kept = features.map_or(0, |features| features.memory(samples.len()));
            let bytes = source.batch_bytes(Weight::sum(samples.iter())).max(kept);
            // A batch larger than the limit waits until all memory is free.
            let pieces = u32::try_from(bytes.div_ceil(RESERVATION_UNIT)).unwrap_or(u32::MAX);
            let pieces = pieces.min(self.pieces);
            let memory = Arc::clone(&self.memory)
                .acquire_many_owned(pieces)
                .await
                .map_err(|_| ended())?;
            let fetch = Fetch {
                part,
                source,
                views,
                indices: good,
                part_samples: Arc::clone(all),
                samples,
                memory,
                features: features.cloned(),
                pass_token: features.map(|_| tracker.token()),
            };
            let fetch = fetch.run(self.fetcher.clone(), hosts.clone(), Arc::clone(&self.bad));
            place.send(AbortOnDropHandle::new(tracker.spawn(fetch)));
        }
        Ok(())
    }
}

/// Divides samples, which are ordered by the number of their earlier draws, into views. Returns the number of
/// samples of each view, and the source with the view.
fn views(samples: &[(usize, u32)], augmented: impl Fn(u32) -> Arc<Source>) -> Vec<(usize, Arc<Source>)> {
    samples
        .chunk_by(|left, right| left.1 == right.1)
        .filter_map(|group| Some((group.len(), augmented(group.first()?.1))))
        .collect()
}

/// A batch in flight.
struct Fetch {
    part: Part,
    source: Arc<Source>,
    /// The number of samples of each view, in order, and the source with the view.
    views: Vec<(usize, Arc<Source>)>,
    indices: Vec<usize>,
    samples: Arc<[ObjectInfo]>,
    /// Samples of the whole part.
    part_samples: Arc<Samples>,
    memory: OwnedSemaphorePermit,
    features: Option<Arc<Features>>,
    pass_token: Option<TaskTrackerToken>,
}

impl Fetch {
    async fn run(
        self,
        fetcher: Fetcher,
        hosts: EpochBytes,
        bad: Arc<BadSamples>,
    ) -> Result<Batch, TrainerError> {
        let found = match &self.features {
            Some(features) => self.find(features, hosts.hosts_of(self.part)).await?,
            None => CacheLookup::default(),
        };
        let missing = found.missing(self.samples.len());
        let mut origins = vec![None; self.samples.len()];
        for place in &found.places {
            if let Some(origin) = origins.get_mut(*place) {
                *origin = Some(Origin::Cached);
            }
        }
        let fetched = match missing.as_slice() {
            [] => None,
            missing => Some(self.fetch(&fetcher, hosts.hosts_of(self.part), missing).await?),
        };
        let (rows, transfer) = match fetched {
            None => (None, Transfer::default()),
            Some(fetched) => {
                let at = |position: &usize| missing.get(*position).copied().unwrap_or(usize::MAX);
                for (position, error) in &fetched.bad {
                    let place = at(position);
                    if let (Some(index), Some(sample)) = (self.indices.get(place), self.samples.get(place)) {
                        bad.record(self.part, *index, sample, error)?;
                    }
                }
                for place in fetched.indices.iter().map(at) {
                    if let Some(origin) = origins.get_mut(place) {
                        *origin = Some(Origin::Fetched(found.keys.get(place).copied()));
                    }
                }
                (
                    Some(fetched.rows).filter(|_| !fetched.indices.is_empty()),
                    fetched.transfer,
                )
            }
        };
        let good = self.indices.iter().zip(&origins);
        let good = good.filter(|(_, origin)| origin.is_some());
        let indices: Vec<usize> = good.map(|(index, _)| *index).collect();
        let targets = Targets::from_samples(&self.part_samples, indices.iter().copied());
        let origins: Vec<Origin> = origins.into_iter().flatten().collect();
        Ok(Batch {
            rows: BatchRows::new(rows, found.rows, origins, self.features),
            indices,
            targets,
            source: self.source,
            transfer,
            epoch: hosts,
            _memory: Some(self.memory),
            _pass_token: self.pass_token,
        })
    }

    /// Looks up the cached features of the batch, and the keys for caching the others.
    async fn find(&self, features: &Arc<Features>, hosts: &Hosts) -> Result<CacheLookup, TrainerError> {
        let mut rest = &*self.samples;
        let mut keys = Vec::with_capacity(rest.len());
        for (count, source) in &self.views {
            let (samples, after) = rest.split_at(rest.len().min(*count));
            rest = after;
            let Some(of_view) = features.keys(hosts, source, samples).await else {
                return Ok(CacheLookup::default());
            };
            keys.extend(of_view);
        }
        let keys: Arc<[RowKey]> = keys.into();
        let found = features.find(Arc::clone(&keys)).await?;
        let takes = features.accepts(&self.source);
        Ok(CacheLookup {
            keys: if takes { keys } else { Arc::default() },
            rows: found.rows,
            places: found.places,
        })
    }

    /// Fetches the samples with the indices `missing`.
    async fn fetch(
        &self,
        fetcher: &Fetcher,
        hosts: &Hosts,
        missing: &[usize],
    ) -> Result<Fetched, TrainerError> {
        let mut fetches = Vec::new();
        let mut rest = missing;
        let mut end = 0;
        for (count, source) in &self.views {
            end += count;
            let (places, after) = rest.split_at(rest.partition_point(|place| *place < end));
            let first = missing.len() - rest.len();
            rest = after;
            let samples: Arc<[ObjectInfo]> = places
                .iter()
                .filter_map(|place| self.samples.get(*place).cloned())
                .collect();
            if !samples.is_empty() {
                let fetched = fetcher.fetch(hosts, Arc::clone(source), samples);
                fetches.push(fetched.map_ok(move |fetched| (first, fetched)));
            }
        }
        joined(try_join_all(fetches).await?)
    }
}

/// Joins the samples of all views. Each is paired with the number of samples before it.
fn joined(mut views: Vec<(usize, Fetched)>) -> Result<Fetched, TrainerError> {
    if views.len() == 1
        && let Some((_, fetched)) = views.pop()
    {
        return Ok(fetched);
    }
    let mut rows = Vec::new();
    let mut indices = Vec::new();
    let mut bad = Vec::new();
    let mut transfer = Transfer::default();
    for (first, fetched) in views {
        indices.extend(fetched.indices.iter().map(|index| first + index));
        bad.extend(
            fetched
                .bad
                .into_iter()
                .map(|(index, error)| (first + index, error)),
        );
        transfer.bytes += fetched.transfer.bytes;
        transfer.open_seconds += fetched.transfer.open_seconds;
        transfer.host_seconds += fetched.transfer.host_seconds;
        rows.push(fetched.rows);
    }
    Ok(Fetched {
        rows: Tensor::concat_rows(&rows)?,
        indices,
        bad,
        transfer,
    })
}

/// Result of looking up a batch in the feature cache.
#[derive(Default)]
struct CacheLookup {
    /// Cache keys of all samples. Empty if fetched rows are not cached.
    keys: Arc<[RowKey]>,
    /// Features found in the cache.
    rows: Option<Tensor>,
    /// Indices of these features in the batch, ascending.
    places: Vec<usize>,
}

impl CacheLookup {
    /// Returns the indices below `count` that were not found, ascending.
    fn missing(&self, count: usize) -> Vec<usize> {
        let is_missing = |place: &usize| self.places.binary_search(place).is_err();
        (0..count).filter(is_missing).collect()
    }
}
