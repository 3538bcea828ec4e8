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
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::{AbortOnDropHandle, TaskTracker, task_tracker::TaskTrackerToken};

/// One batch, ready for the engine. Its memory is released on drop.
pub(crate) struct Batch {
    /// The rows; none when every sample of the batch is bad.
    pub(crate) rows: Option<BatchRows>,
    /// Which of the part's samples they are.
    pub(crate) indices: Vec<usize>,
    /// Their targets.
    pub(crate) targets: Targets,
    /// Where they come from.
    pub(crate) source: Arc<Source>,
    /// The cost of their transfer.
    pub(crate) transfer: Transfer,
    /// Counts the bytes of this batch's epoch.
    pub(crate) epoch: EpochBytes,
    _memory: Option<OwnedSemaphorePermit>,
    /// Where rows are kept, the next pass over them waits until this one's are.
    _used: Option<TaskTrackerToken>,
}

/// The hosts as one epoch uses them: each part counts what it receives.
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

    /// Bytes until now.
    pub(crate) fn received(&self) -> Received {
        Received {
            training: self.training.bytes_received(),
            validation: self.validation.bytes_received(),
            ..Received::default()
        }
    }
}

type Fetching = AbortOnDropHandle<Result<Batch, TrainerError>>;

/// Prefetched batches, in order. Dropping it cancels every fetch.
pub(crate) struct Feed {
    batches: mpsc::Receiver<Fetching>,
    _driver: AbortOnDropHandle<Result<(), TrainerError>>,
}

/// Memory is reserved in pieces of this many bytes, since a semaphore counts to 2^32 at most.
const PIECE: u64 = 4096;

impl Feed {
    /// Starts prefetching.
    ///
    /// # Errors
    /// [`TrainerError::Memory`] when two batches do not fit the memory given.
    pub(crate) fn start(
        plan: FeedPlan,
        fetcher: Fetcher,
        steering: Arc<Steering>,
        hosts: Hosts,
        bad: Arc<BadSamples>,
    ) -> Result<Self, TrainerError> {
        plan.check_memory(&steering.now())?;
        let (sender, batches) = mpsc::channel(plan.ahead.max(1));
        let pieces = u32::try_from(plan.memory_bytes / PIECE).unwrap_or(u32::MAX);
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

    /// The next batch.
    ///
    /// # Errors
    /// Whatever its fetch ended with.
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
    /// All of it.
    pieces: u32,
    sender: mpsc::Sender<Fetching>,
}

impl Driver {
    async fn run(self, hosts: Hosts) -> Result<(), TrainerError> {
        let mut earlier = [TaskTracker::new(), TaskTracker::new()];
        for epoch in self.plan.first..=self.plan.epochs {
            let hosts = EpochBytes::new(&hosts);
            for (part, earlier) in [Part::Train, Part::Validation].into_iter().zip(&mut earlier) {
                if part == Part::Train && epoch == 0 && !self.plan.looks {
                    continue;
                }
                // A sample found bad in the part's last pass must be known before its next pass asks for it, and what was kept of it there.
                earlier.close();
                earlier.wait().await;
                *earlier = TaskTracker::new();
                self.pass(epoch, part, &hosts, earlier).await?;
            }
        }
        Ok(())
    }

    /// Starts the fetches of one pass over a part, each once its memory and its place in the queue are there.
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
        for indices in order.chunks(self.plan.batch).skip(self.plan.behind(epoch, part)) {
            let place = self.sender.reserve().await.map_err(|_| ended())?;
            let good = indices
                .iter()
                .map(|index| *index as usize)
                .filter(|index| !self.bad.contains(part, *index));
            let good: Vec<usize> = good.collect();
            let all = self.plan.samples(part);
            let samples: Arc<[ObjectInfo]> = good.iter().filter_map(|index| all.get(*index)).collect();
            let source = self.plan.viewed(self.steering.next(part), epoch, part);
            let kept = features.map_or(0, |features| features.memory(samples.len()));
            let bytes = source.batch_bytes(Weight::sum(samples.iter())).max(kept);
            // A batch that takes more than there is waits until all of it is free, and no longer.
            let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX);
            let pieces = pieces.min(self.pieces);
            let memory = Arc::clone(&self.memory)
                .acquire_many_owned(pieces)
                .await
                .map_err(|_| ended())?;
            let fetch = Fetch {
                part,
                source,
                indices: good,
                part_samples: Arc::clone(all),
                samples,
                memory,
                features: features.cloned(),
                used: features.map(|_| tracker.token()),
            };
            let fetch = fetch.run(self.fetcher.clone(), hosts.clone(), Arc::clone(&self.bad));
            place.send(AbortOnDropHandle::new(tracker.spawn(fetch)));
        }
        Ok(())
    }
}

/// One batch on its way.
struct Fetch {
    part: Part,
    source: Arc<Source>,
    indices: Vec<usize>,
    samples: Arc<[ObjectInfo]>,
    /// All of the part.
    part_samples: Arc<Samples>,
    memory: OwnedSemaphorePermit,
    features: Option<Arc<Features>>,
    used: Option<TaskTrackerToken>,
}

impl Fetch {
    async fn run(
        self,
        fetcher: Fetcher,
        hosts: EpochBytes,
        bad: Arc<BadSamples>,
    ) -> Result<Batch, TrainerError> {
        let found = match &self.features {
            Some(features) => self.find(features).await?,
            None => CachedPart::default(),
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
                for place in fetched.kept.iter().map(at) {
                    if let Some(origin) = origins.get_mut(place) {
                        *origin = Some(Origin::Fetched(found.keys.get(place).copied()));
                    }
                }
                (
                    Some(fetched.rows).filter(|_| !fetched.kept.is_empty()),
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
            _used: self.used,
        })
    }

    /// What of the batch was kept, and what else of it may be.
    async fn find(&self, features: &Arc<Features>) -> Result<CachedPart, TrainerError> {
        let Some(keys) = features.keys(&self.source, &self.samples) else {
            return Ok(CachedPart::default());
        };
        let keys: Arc<[RowKey]> = keys.into();
        let found = features.find(Arc::clone(&keys)).await?;
        let takes = features.accepts(&self.source);
        Ok(CachedPart {
            keys: if takes { keys } else { Arc::default() },
            rows: found.rows,
            places: found.places,
        })
    }

    /// Fetches those of the batch's samples that are `missing`.
    async fn fetch(
        &self,
        fetcher: &Fetcher,
        hosts: &Hosts,
        missing: &[usize],
    ) -> Result<Fetched, TrainerError> {
        let samples: Arc<[ObjectInfo]> = if missing.len() == self.samples.len() {
            Arc::clone(&self.samples)
        } else {
            let missing = missing.iter().filter_map(|place| self.samples.get(*place));
            missing.cloned().collect()
        };
        Ok(fetcher.fetch(hosts, Arc::clone(&self.source), samples).await?)
    }
}

/// What is known of a batch's rows before any is fetched.
#[derive(Default)]
struct CachedPart {
    /// What each is to be kept under; none where they are not kept.
    keys: Arc<[RowKey]>,
    /// Those that were kept.
    rows: Option<Tensor>,
    /// Which they are, ascending.
    places: Vec<usize>,
}

impl CachedPart {
    /// Those of `count` that were not kept, ascending.
    fn missing(&self, count: usize) -> Vec<usize> {
        let is_missing = |place: &usize| self.places.binary_search(place).is_err();
        (0..count).filter(is_missing).collect()
    }
}
