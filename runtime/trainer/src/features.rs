//! Cached features: activations at the freeze cut, reused by later epochs and other jobs.

use crate::event::warn;
use crate::pipeline::{FeedPlan, Part};
use crate::{Events, Job, TrainerError, blocking};
use frostline_client::Samples;
use frostline_features::Provenance;
use frostline_rows::RowCache;
use frostline_wire::View;
use std::sync::Arc;

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

/// Condition for opening a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Opens only existing caches, without evicting others.
    IfPresent,
    /// Creates the cache if it is missing, and evicts others to make room for all features.
    Create,
}

/// Opens the cache for features of this provenance. On failure, emits a warning and returns `None`, and the job runs
/// without a cache.
pub(crate) async fn open_cache(
    job: &Job,
    made: Provenance,
    plan: &FeedPlan,
    events: &Events,
    opening: OpenMode,
) -> Result<Option<Arc<RowCache>>, TrainerError> {
    let Some(cache) = job.features.clone() else {
        return Ok(None);
    };
    if let Some(why) = too_large(&made.shape, plan) {
        if opening == OpenMode::Create {
            warn(events, why);
        }
        return Ok(None);
    }
    let rows = cacheable_features(plan);
    let told = Arc::clone(events);
    let opened = blocking(move || {
        let rows = match opening {
            OpenMode::IfPresent if !cache.has(&made.subject(), &made.row()) => return Ok(Ok(None)),
            OpenMode::IfPresent => 0,
            OpenMode::Create => rows,
        };
        let stopped = Arc::new(move |why: String| {
            warn(&told, format!("caching features stopped: {why}"));
        });
        Ok(RowCache::open(&cache, made, rows, stopped).map(Some))
    });
    match opened.await? {
        Ok(cache) => Ok(cache.map(Arc::new)),
        Err(error) => {
            warn(events, format!("cannot cache features: {error}"));
            Ok(None)
        }
    }
}

/// Counts the cached features of the samples in `plan`.
pub(crate) async fn coverage(cache: &Arc<RowCache>, plan: &FeedPlan) -> Result<Coverage, TrainerError> {
    let cache = Arc::clone(cache);
    let plan = plan.clone();
    blocking(move || {
        let views = plan.views.cacheable(plan.epochs).into_iter();
        let trained: u64 = views
            .map(|view| count_cached(&cache, &plan.train, view.as_ref()))
            .sum();
        let cacheable = cacheable_features(&plan);
        Ok(Coverage {
            cached: trained + count_cached(&cache, &plan.validation, None),
            cacheable,
            bytes: cache.store().disk_bytes(cacheable),
            repeats: plan.views.repeat(),
        })
    })
    .await
}

fn count_cached(cache: &RowCache, samples: &Samples, view: Option<&View>) -> u64 {
    let all = (0..samples.len()).filter_map(|index| samples.get(index));
    cache.count(all, view)
}

/// Emits a warning for each problem of the cache. Such problems only slow the job down.
pub(crate) fn report_problems(cache: &RowCache, events: &Events) {
    for message in cache.store().take_warnings() {
        warn(events, message);
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
    let [train, validation] = [Part::Train, Part::Validation].map(|part| plan.samples(part).len() as u64);
    plan.views.cacheable(plan.epochs).len() as u64 * train + validation
}
