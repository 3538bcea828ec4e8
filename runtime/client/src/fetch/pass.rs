//! Ordered iteration over batches of samples with prefetch.

use super::{Fetched, Fetcher, Source, Weight};
use crate::{ClientError, Hosts};
use frostline_wire::ObjectInfo;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// Prefetch limits of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchLimits {
    /// Maximum number of batches to fetch ahead of the current one.
    pub batches: usize,
    /// Maximum total memory in bytes of the batches in flight ([`Source::batch_bytes`]). At least one batch
    /// is always fetched.
    pub bytes: u64,
}

/// Prefetching pass over batches. Dropping this value cancels the batches in flight.
pub struct Pass {
    fetcher: Fetcher,
    hosts: Hosts,
    source: Arc<Source>,
    ahead: usize,
    waiting: VecDeque<Arc<[ObjectInfo]>>,
    ordered: VecDeque<Ordered>,
}

/// A batch in flight.
struct Ordered {
    samples: Arc<[ObjectInfo]>,
    fetching: AbortOnDropHandle<Result<Fetched, ClientError>>,
}

/// A fetched batch and the requested samples.
pub struct Passed {
    /// Requested samples.
    pub samples: Arc<[ObjectInfo]>,
    /// Result of the fetch.
    pub fetched: Fetched,
}

impl Pass {
    /// Creates a pass over `batches`. Requests are not sent before [`Pass::next`].
    pub fn new(
        fetcher: Fetcher,
        hosts: Hosts,
        source: Arc<Source>,
        batches: VecDeque<Arc<[ObjectInfo]>>,
        ahead: PrefetchLimits,
    ) -> Self {
        let bytes = |batch: &Arc<[ObjectInfo]>| source.batch_bytes(Weight::sum(batch.iter()));
        let most = batches.iter().map(bytes).max().unwrap_or(0).max(1);
        let fit = usize::try_from(ahead.bytes / most).unwrap_or(usize::MAX);
        Self {
            ahead: ahead.batches.min(fit.saturating_sub(1)),
            fetcher,
            hosts,
            source,
            waiting: batches,
            ordered: VecDeque::new(),
        }
    }

    /// Returns the number of remaining batches.
    pub fn left(&self) -> usize {
        self.waiting.len() + self.ordered.len()
    }

    /// Returns the next batch, or `None` at the end. This method is cancel safe.
    ///
    /// # Errors
    /// Returns the errors of [`Fetcher::fetch`]. Later batches remain in flight.
    pub async fn next(&mut self) -> Option<Result<Passed, ClientError>> {
        self.order();
        let first = self.ordered.front_mut()?;
        let fetched = (&mut first.fetching).await;
        let fetched = fetched.unwrap_or(Err(ClientError::Ended { part: "fetch" }));
        let samples = self.ordered.pop_front()?.samples;
        // Refill the prefetch window now, because the caller will be busy with this batch.
        self.order();
        Some(fetched.map(|fetched| Passed { samples, fetched }))
    }

    fn order(&mut self) {
        while self.ordered.len() <= self.ahead
            && let Some(samples) = self.waiting.pop_front()
        {
            let (fetcher, hosts) = (self.fetcher.clone(), self.hosts.clone());
            let (source, asked) = (Arc::clone(&self.source), Arc::clone(&samples));
            let fetch = async move { fetcher.fetch(&hosts, source, asked).await };
            let fetching = AbortOnDropHandle::new(tokio::spawn(fetch));
            self.ordered.push_back(Ordered { samples, fetching });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fetching::{assert_complete, retry, source, start_with};
    use crate::{HostClient, RowKind};
    use frostline_fake_host::numbered::{WIDTH, answer_all, samples};
    use frostline_fake_host::{FakeHost, extraction};

    /// Pass over `s0`, `s1`, ... in batches of eight, with up to two prefetched batches if `bytes` permit.
    fn pass(host: &FakeHost, count: usize, bytes: u64) -> Pass {
        let client = HostClient::new(&host.url, None).unwrap();
        let setting = start_with(client.into(), source(RowKind::Values), retry());
        let batches = samples(count).chunks(8).map(Arc::from).collect();
        let ahead = PrefetchLimits { batches: 2, bytes };
        Pass::new(setting.fetcher, setting.hosts, setting.source, batches, ahead)
    }

    #[tokio::test]
    async fn batches_come_in_order_and_only_so_many_are_under_way() {
        let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
        let mut pass = pass(&host, 60, u64::MAX);
        assert_eq!((pass.left(), pass.ordered.len()), (8, 0));
        let mut rows = Vec::new();
        while let Some(passed) = pass.next().await {
            let Passed { samples, fetched } = passed.unwrap();
            assert_eq!(samples.len(), fetched.indices.len());
            let values = fetched.rows.as_f32().unwrap().chunks(WIDTH);
            rows.extend(values.map(|row| row[0] as usize));
            assert_eq!(pass.ordered.len(), 3.min(pass.left()));
        }
        assert_complete(&rows, 60);
        assert!(pass.next().await.is_none());
    }

    #[tokio::test]
    async fn one_batch_is_under_way_however_little_memory_there_is() {
        let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
        let mut pass = pass(&host, 20, 1);
        // Poll once and drop the future before any data can arrive.
        assert!(futures::poll!(Box::pin(pass.next())).is_pending());
        assert_eq!((pass.left(), pass.ordered.len()), (3, 1));
        let first = pass.next().await.unwrap().unwrap();
        assert_eq!(first.samples[0].sample.key, "s0", "nothing is lost");
    }
}
