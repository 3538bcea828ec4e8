//! Cached features: activations at the freeze cut, reused by later epochs and other jobs.

use crate::compute::blocking;
use crate::pipeline::{FeedPlan, Part};
use crate::recipe::Views;
use crate::{Event, Events, Job, TrainerError};
use frostline_client::{Hosts, Samples, Source};
use frostline_features::{Content, FoundRows, Provenance, Rounding, RowKey, RowKeys, Store};
use frostline_tensor::Tensor;
use frostline_wire::ObjectInfo;
use std::sync::Arc;

/// Cached features of a job.
pub(crate) struct Features {
    store: Arc<Store>,
    root: String,
    /// Random identifier of this job. Objects without an etag are cached only for this job.
    job_id: [u8; 16],
    freeze: String,
    rounding: Rounding,
    views: Views,
}

/// Number of cached features of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) cached: u64,
    /// Number of cacheable features.
    pub(crate) cacheable: u64,
    /// Disk usage of all cacheable features, in bytes.
    pub(crate) bytes: u64,
    /// True if training samples look the same in later epochs.
    pub(crate) repeats: bool,
}

/// Condition for opening a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Opens only existing stores, without evicting others, and stores shared by other machines.
    IfPresent,
    /// Creates the store if it is missing, and evicts others to make room for all features.
    Create,
}

impl Features {
    /// Opens the store for features of this provenance. On failure, emits a warning and returns `None`, and
    /// the job runs without a cache.
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
        let offered = match &job.shared_store {
            Some(store) => store.has_features(&subject.name(&row), events).await,
            None => false,
        };
        let (views, rows, told) = (plan.views, cacheable_features(plan), Arc::clone(events));
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
                if let (Some(features), Some(store)) = (&features, &job.shared_store) {
                    store.download(features.store(), events).await;
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
        let mut job_id = [0; 16];
        getrandom::fill(&mut job_id).map_err(|error| error.to_string())?;
        Ok(Self {
            store: Arc::new(store),
            root,
            job_id,
            freeze: made.freeze,
            rounding: made.rounding,
            views,
        })
    }

    /// Returns the store, which can be shared with other machines.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the cache keys of `samples` from `source`. Files that changed since their content was last hashed
    /// are hashed by `hosts`. Returns `None` if the view of the samples never repeats, so caching is useless.
    pub(crate) async fn keys(
        &self,
        hosts: &Hosts,
        source: &Source,
        samples: &[ObjectInfo],
    ) -> Option<Vec<RowKey>> {
        if source.view.is_some() && !self.views.repeat() {
            return None;
        }
        let keys = RowKeys::new(&self.root, source.view.as_ref(), self.job_id);
        let new = self.store.unhashed(&keys, samples);
        if !new.is_empty() {
            let hashes = hosts.digests(&source.root, &new, source.request_samples).await;
            self.store.record_contents(&keys, &new, &hashes);
        }
        let key = |sample: &ObjectInfo| keys.key_of(&sample.sample, self.store.content(&keys, sample));
        Some(samples.iter().map(key).collect())
    }

    /// Returns true if the rounding of activations from `source` is precise enough for the store.
    pub(crate) fn accepts(&self, source: &Source) -> bool {
        let rounding = Rounding::for_split(source.encoding, &source.split, &self.freeze);
        self.rounding.accepts(&rounding)
    }

    /// Looks up cached features by key.
    pub(crate) async fn find(self: &Arc<Self>, keys: Arc<[RowKey]>) -> Result<FoundRows, TrainerError> {
        let features = Arc::clone(self);
        blocking(move || Ok(features.store.read(&keys))).await
    }

    /// Rounds new activations in the same way as the store. This ensures that features are equal in all
    /// epochs. A key is cleared if the features cannot be stored.
    pub(crate) fn round(&self, keys: &mut [Option<RowKey>], rows: &mut Tensor) {
        self.store.round(keys, rows);
    }

    pub(crate) fn cache(&self, keys: Vec<Option<RowKey>>, rows: Tensor) {
        self.store.keep(keys, rows);
    }

    /// Emits a warning for each problem of the store. Such problems only slow the job down.
    pub(crate) fn report_problems(&self, events: &Events) {
        for message in self.store.take_warnings() {
            events(Event::Warning { message });
        }
    }

    /// Loads features cached by other jobs since the last refresh.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<(), TrainerError> {
        let features = Arc::clone(self);
        // If this fails, the known features remain available.
        blocking(move || {
            let _ = features.store.refresh();
            Ok(())
        })
        .await
    }

    /// Returns the memory needed for `rows` features, in bytes.
    pub(crate) fn memory(&self, rows: usize) -> u64 {
        self.store.row_memory().saturating_mul(rows as u64)
    }

    /// Counts the cached features of the samples in `plan`.
    pub(crate) async fn coverage(self: &Arc<Self>, plan: &FeedPlan) -> Result<Coverage, TrainerError> {
        let (features, plan) = (Arc::clone(self), plan.clone());
        blocking(move || Ok(features.count_cached(&plan))).await
    }

    fn count_cached(&self, plan: &FeedPlan) -> Coverage {
        let count = |samples: &Samples, view| {
            let keys = RowKeys::new(&self.root, view, self.job_id);
            let all = (0..samples.len()).filter_map(|index| samples.get(index));
            let mut known = Vec::new();
            let mut new = Vec::new();
            for sample in all {
                match self.store.content(&keys, &sample) {
                    // The file is hashed before the row is used.
                    Content::Unknown => new.push(keys.key_of(&sample.sample, Content::Hash(0))),
                    content => known.push(keys.key_of(&sample.sample, content)),
                }
            }
            (self.store.count(known.iter()) + self.store.count_samples(new.iter())) as u64
        };
        let views = plan.views.cacheable(plan.epochs);
        let trained = views
            .iter()
            .map(|view| count(&plan.train, view.as_ref()))
            .sum::<u64>();
        Coverage {
            cached: trained + count(&plan.validation, None),
            cacheable: cacheable_features(plan),
            bytes: self.store.disk_bytes(cacheable_features(plan)),
            repeats: plan.views.repeat(),
        }
    }
}

/// Returns the reason if features of this shape cannot be cached: two batches must fit in the memory limit of
/// `plan`, because a cached batch is read at once.
fn too_large(shape: &[usize], plan: &FeedPlan) -> Option<String> {
    let row = shape.iter().map(|dim| *dim as u64).fold(4, u64::saturating_mul);
    let rows = plan.train.len().max(plan.validation.len()).min(plan.batch);
    let batch = row.saturating_mul(rows as u64);
    (batch.saturating_mul(2) > plan.memory_bytes).then(|| {
        format!(
            "cannot cache features: memory_bytes is {}, but two batches of {batch} bytes are required; raise the limit or reduce the batch",
            plan.memory_bytes
        )
    })
}

/// Returns the number of cacheable features for the batches of `plan`.
pub(crate) fn cacheable_features(plan: &FeedPlan) -> u64 {
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
