//! Rows at the freeze cut that are kept: from one epoch to the next, and from one job to the next.

use crate::compute::blocking;
use crate::pipeline::{FeedPlan, Part};
use crate::recipe::Views;
use crate::{Event, Events, Job, TrainerError};
use frostline_client::{Samples, Source};
use frostline_features::{Found, Provenance, Rounding, RowKey, RowKeys, Store};
use frostline_tensor::Tensor;
use frostline_wire::ObjectInfo;
use std::sync::Arc;

/// The rows of a job that are kept.
pub(crate) struct Features {
    store: Arc<Store>,
    root: String,
    /// Distinguishes objects without an etag from those of other jobs.
    run: [u8; 16],
    freeze: String,
    rounding: Rounding,
    views: Views,
}

/// How many of a job's features are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) kept: u64,
    /// Features that can be cached.
    pub(crate) rows: u64,
    /// Bytes these take on disk.
    pub(crate) bytes: u64,
    /// Whether each of its training samples looks the same again in a later epoch.
    pub(crate) repeats: bool,
}

/// Which stores may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Only an existing one, or one that other machines share. It evicts nothing.
    IfPresent,
    /// Creates a missing one, with room for all features.
    Create,
}

impl Features {
    /// Opens the store for features of this provenance. On failure the job warns and runs without a cache.
    pub(crate) async fn open(
        job: &Job,
        made: Provenance,
        plan: &FeedPlan,
        events: &Events,
        opening: OpenMode,
    ) -> Result<Option<Arc<Self>>, TrainerError> {
        let Some(cache) = job.features.clone() else {
            return Ok(None);
        };
        if let Some(why) = too_large(&made.shape, plan) {
            if opening == OpenMode::Create {
                events(Event::Warning { message: why });
            }
            return Ok(None);
        }
        let (subject, row) = (made.subject(), made.row());
        let offered = match &job.team {
            Some(team) => team.offers(&subject.name(&row), events).await,
            None => false,
        };
        let (views, rows, told) = (plan.views, rows_of(plan), Arc::clone(events));
        let open = move || {
            if opening == OpenMode::IfPresent && !offered && !cache.has(&subject, &row) {
                return Ok(Ok(None));
            }
            let rows = if opening == OpenMode::IfPresent && !offered {
                0
            } else {
                rows
            };
            let stopped = Arc::new(move |why: String| {
                let message = format!("caching features stopped: {why}");
                told(Event::Warning { message });
            });
            let store = cache.open(&subject, &row, rows, stopped);
            let opened = store.map_err(|error| error.to_string());
            Ok(opened.and_then(|store| Self::new(store, subject.data, made, views).map(Some)))
        };
        match blocking(open).await? {
            Ok(features) => {
                let features = features.map(Arc::new);
                if let (Some(features), Some(team)) = (&features, &job.team) {
                    team.download(features.store(), events).await;
                }
                Ok(features)
            }
            Err(why) => {
                let message = format!("cannot cache features: {why}");
                events(Event::Warning { message });
                Ok(None)
            }
        }
    }

    fn new(store: Store, root: String, made: Provenance, views: Views) -> Result<Self, String> {
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|error| error.to_string())?;
        Ok(Self {
            store: Arc::new(store),
            root,
            run,
            freeze: made.freeze,
            rounding: made.rounding,
            views,
        })
    }

    /// For whoever shares them.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The keys of `samples` as they come from `source`; `None` where such rows are not kept: because they never look like that again, or travel
    /// with more rounding than the store takes.
    pub(crate) fn keys(&self, source: &Source, samples: &[ObjectInfo]) -> Option<Vec<RowKey>> {
        if source.view.is_some() && !self.views.repeat() {
            return None;
        }
        let keys = RowKeys::new(&self.root, source.view.as_ref(), self.run);
        Some(samples.iter().map(|sample| keys.key_of(&sample.sample)).collect())
    }

    /// Whether rows from `source` may be kept.
    pub(crate) fn accepts(&self, source: &Source) -> bool {
        let rounding = Rounding::for_split(source.encoding, &source.split, &self.freeze);
        self.rounding.takes(&rounding)
    }

    /// Those of `keys` that are there.
    pub(crate) async fn find(self: &Arc<Self>, keys: Arc<[RowKey]>) -> Result<Found, TrainerError> {
        let features = Arc::clone(self);
        blocking(move || Ok(features.store.read(&keys))).await
    }

    /// Makes fresh rows what they will be once they were kept, so that a sample is trained on alike in every epoch.
    pub(crate) fn round(&self, keys: &mut [Option<RowKey>], rows: &mut Tensor) {
        self.store.round(keys, rows);
    }

    pub(crate) fn cache(&self, keys: Vec<Option<RowKey>>, rows: Tensor) {
        self.store.keep(keys, rows);
    }

    /// Emits a warning for each problem of the store; a problem only slows the job.
    pub(crate) fn report_problems(&self, events: &Events) {
        for message in self.store.news() {
            events(Event::Warning { message });
        }
    }

    /// Loads what other jobs cached meanwhile.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<(), TrainerError> {
        let features = Arc::clone(self);
        // A store that cannot be read again is as it was.
        blocking(move || {
            let _ = features.store.refresh();
            Ok(())
        })
        .await
    }

    /// Bytes of `rows` rows in memory.
    pub(crate) fn memory(&self, rows: usize) -> u64 {
        self.store.row_memory().saturating_mul(rows as u64)
    }

    /// How many features of the batches of `plan` are cached.
    pub(crate) async fn coverage(self: &Arc<Self>, plan: &FeedPlan) -> Result<Coverage, TrainerError> {
        let (features, plan) = (Arc::clone(self), plan.clone());
        blocking(move || Ok(features.count_cached(&plan))).await
    }

    fn count_cached(&self, plan: &FeedPlan) -> Coverage {
        let count = |samples: &Samples, view| {
            let keys = RowKeys::new(&self.root, view, self.run);
            let all = (0..samples.len()).filter_map(|index| samples.get(index));
            let all: Vec<RowKey> = all.map(|sample| keys.key_of(&sample.sample)).collect();
            self.store.count(all.iter()) as u64
        };
        let views = plan.views.cacheable(plan.epochs);
        let trained = views
            .iter()
            .map(|view| count(&plan.train, view.as_ref()))
            .sum::<u64>();
        Coverage {
            kept: trained + count(&plan.validation, None),
            rows: rows_of(plan),
            bytes: self.store.disk_bytes(rows_of(plan)),
            repeats: plan.views.repeat(),
        }
    }
}

/// Why rows of this shape are not kept, where two batches of them do not fit the memory of `plan`: a batch whose rows were kept is read as a whole.
fn too_large(shape: &[usize], plan: &FeedPlan) -> Option<String> {
    let row = shape.iter().map(|dim| *dim as u64).fold(4, u64::saturating_mul);
    let rows = plan.train.len().max(plan.validation.len()).min(plan.batch);
    let batch = row.saturating_mul(rows as u64);
    (batch.saturating_mul(2) > plan.memory_bytes).then(|| {
        format!(
            "cannot cache features: two batches of {batch} bytes must fit --memory-bytes, which is {}; raise it, or reduce --batch",
            plan.memory_bytes
        )
    })
}

/// Rows that the batches of `plan` use and that can be kept.
pub(crate) fn rows_of(plan: &FeedPlan) -> u64 {
    let of = |part| plan.samples(part).len() as u64;
    plan.views.cacheable(plan.epochs).len() as u64 * of(Part::Train) + of(Part::Validation)
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Features")
            .field("root", &self.root)
            .field("rounding", &self.rounding)
            .finish_non_exhaustive()
    }
}
