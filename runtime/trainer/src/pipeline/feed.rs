use super::batches::{FeedPlan, Part};
use super::{BadSamples, Steering};
use crate::targets::Targets;
use crate::{Received, TrainerError};
use frostline_client::{Fetcher, Hosts, Samples, Source, Transfer, Weight};
use frostline_tensor::Tensor;
use frostline_wire::ObjectInfo;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// One batch, ready for the engine. Its memory is given back when it is dropped.
pub(crate) struct Batch {
    /// The rows; none when every sample of the batch is bad.
    pub(crate) rows: Option<Tensor>,
    /// What they are to come out as.
    pub(crate) targets: Targets,
    /// Where they come from.
    pub(crate) source: Arc<Source>,
    /// What bringing them here took.
    pub(crate) transfer: Transfer,
    /// Counts the bytes of this batch's epoch.
    pub(crate) epoch: EpochBytes,
    _memory: Option<OwnedSemaphorePermit>,
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

    fn of(&self, part: Part) -> &Hosts {
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

/// Batches as they are wanted, extracted ahead. Dropping it ends every fetch.
pub(crate) struct Feed {
    batches: mpsc::Receiver<Fetching>,
    _driver: AbortOnDropHandle<Result<(), TrainerError>>,
}

/// Memory is reserved in pieces of this many bytes, since a semaphore counts to 2^32 at most.
const PIECE: u64 = 4096;

impl Feed {
    /// Begins to extract.
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
        let pieces = (plan.memory_bytes / PIECE).min(u64::from(u32::MAX)) as usize;
        let memory = Arc::new(Semaphore::new(pieces.min(Semaphore::MAX_PERMITS)));
        let driver = Driver {
            plan,
            fetcher,
            steering,
            bad,
            memory,
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
                // A sample found bad in the part's last pass must be known before its next pass asks for it.
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
            let pieces = source.batch_bytes(Weight::of(samples.iter())).div_ceil(PIECE);
            let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
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
}

impl Fetch {
    async fn run(
        self,
        fetcher: Fetcher,
        hosts: EpochBytes,
        bad: Arc<BadSamples>,
    ) -> Result<Batch, TrainerError> {
        if self.samples.is_empty() {
            return Ok(Batch {
                rows: None,
                targets: Targets::Classes(Vec::new()),
                source: self.source,
                transfer: Transfer::default(),
                epoch: hosts,
                _memory: None,
            });
        }
        let (source, samples) = (Arc::clone(&self.source), Arc::clone(&self.samples));
        let fetched = fetcher.fetch(hosts.of(self.part), source, samples).await?;
        for (position, error) in &fetched.bad {
            if let (Some(index), Some(sample)) = (self.indices.get(*position), self.samples.get(*position)) {
                bad.note(self.part, *index, sample, error)?;
            }
        }
        let kept = fetched.kept.iter();
        let kept = kept.filter_map(|position| self.indices.get(*position).copied());
        let targets = Targets::of(&self.part_samples, kept);
        let rows = (targets.rows() > 0).then_some(fetched.rows);
        Ok(Batch {
            rows,
            targets,
            source: self.source,
            transfer: fetched.transfer,
            epoch: hosts,
            _memory: Some(self.memory),
        })
    }
}
