use frostline_client::{Fetcher, Hosts, Source};
use frostline_rows::{Prefetch, PrefetchLimits, RowCache, RowSource, RowsError, SampleBatch};
use frostline_wire::ObjectInfo;
use std::sync::Arc;

/// Limit of open requests per host, like in a job.
pub(super) const OPEN_REQUESTS: usize = 8;
/// Number of batches to fetch while a batch is written, with a memory limit. Writing is faster than fetching.
const PREFETCH: PrefetchLimits = PrefetchLimits {
    batches: 3,
    bytes: 1 << 30,
};

/// Access to activations that are not cached.
pub(super) struct RemoteActivations {
    pub(super) fetcher: Fetcher,
    pub(super) hosts: Hosts,
    pub(super) source: Arc<Source>,
}

impl RemoteActivations {
    /// Starts to get the activations of `samples` in batches.
    pub(super) fn rows(
        &self,
        cache: Option<Arc<RowCache>>,
        samples: &[ObjectInfo],
        batch: usize,
    ) -> Prefetch<SampleBatch, RowsError> {
        let rows = RowSource {
            fetcher: Some(self.fetcher.clone()),
            cache,
        };
        let batches = samples.chunks(batch).map(Arc::from).collect();
        let hosts = self.hosts.clone();
        let source = Arc::clone(&self.source);
        Prefetch::of_samples(rows, PREFETCH, hosts, source, batches)
    }
}
