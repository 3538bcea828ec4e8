//! Ordered prefetch of batches.

use crate::{BatchRequest, FetchedBatch, RowSource, RowsError};
use frostline_client::{Hosts, Source};
use frostline_wire::ObjectInfo;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

/// Unit of memory reservations in bytes. A semaphore can only acquire up to 2^32 permits.
const RESERVATION_UNIT: u64 = 4096;

/// Limits of a prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchLimits {
    /// Maximum number of batches to fetch ahead of the current one, at least 1.
    pub batches: usize,
    /// Maximum total memory in bytes of all batches until the caller drops their reservation. A larger batch waits
    /// until all memory is free.
    pub bytes: u64,
}

/// Memory reservation of a batch. Dropping it releases the memory.
#[derive(Debug)]
pub struct ReservedMemory(#[expect(dead_code, reason = "released when dropped")] OwnedSemaphorePermit);

/// Prefetched batches in order. Dropping this cancels all fetches.
pub struct Prefetch<T, E> {
    batches: mpsc::Receiver<AbortOnDropHandle<Result<T, E>>>,
    /// Next batch, kept if [`next`](Self::next) is cancelled.
    current: Option<AbortOnDropHandle<Result<T, E>>>,
    _driver: AbortOnDropHandle<()>,
}

impl<T: Send + 'static, E: From<RowsError> + Send + 'static> Prefetch<T, E> {
    /// Starts `drive` in the background, which requests the batches from its argument.
    pub fn start<F: Future<Output = ()> + Send + 'static>(
        source: RowSource,
        limits: PrefetchLimits,
        drive: impl FnOnce(Requests<T, E>) -> F,
    ) -> Self {
        let (sender, batches) = mpsc::channel(limits.batches.max(1));
        let units = u32::try_from(limits.bytes / RESERVATION_UNIT).unwrap_or(u32::MAX);
        let units = units.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let requests = Requests {
            source,
            memory: Arc::new(Semaphore::new(units as usize)),
            units,
            sender,
        };
        Self {
            batches,
            current: None,
            _driver: AbortOnDropHandle::new(tokio::spawn(drive(requests))),
        }
    }

    /// Waits for the next batch, or returns `None` at the end. This method is cancel safe.
    ///
    /// # Errors
    /// Returns the error of the fetch, or [`RowsError::Ended`] if it panicked. Later batches remain in flight.
    pub async fn next(&mut self) -> Option<Result<T, E>> {
        if self.current.is_none() {
            self.current = self.batches.recv().await;
        }
        let fetched = self.current.as_mut()?.await;
        self.current = None;
        Some(fetched.unwrap_or_else(|_| Err(RowsError::Ended { part: "fetch" }.into())))
    }
}

/// Batch returned by [`Prefetch::of_samples`].
pub struct SampleBatch {
    /// The requested samples.
    pub samples: Arc<[ObjectInfo]>,
    /// Result of the fetch.
    pub fetched: FetchedBatch,
    _memory: ReservedMemory,
}

impl Prefetch<SampleBatch, RowsError> {
    /// Gets the rows of `batches` from one source. Later batches repeat the views, so that rows are cached.
    pub fn of_samples(
        rows: RowSource,
        limits: PrefetchLimits,
        hosts: Hosts,
        source: Arc<Source>,
        batches: Vec<Arc<[ObjectInfo]>>,
    ) -> Self {
        Self::start(rows, limits, |requests| async move {
            for samples in batches {
                let Some(place) = requests.place().await else {
                    return;
                };
                let request = BatchRequest {
                    hosts: hosts.clone(),
                    parts: vec![(Arc::clone(&source), Arc::clone(&samples))],
                    repeats: true,
                };
                place
                    .fetch(request, |fetched, memory| {
                        Ok(SampleBatch {
                            samples,
                            fetched,
                            _memory: memory,
                        })
                    })
                    .await;
            }
        })
    }
}

/// Starts the fetches of a [`Prefetch`].
pub struct Requests<T, E> {
    source: RowSource,
    memory: Arc<Semaphore>,
    /// Number of units of memory in total.
    units: u32,
    sender: mpsc::Sender<AbortOnDropHandle<Result<T, E>>>,
}

/// A free place for a batch.
pub struct Place<'a, T, E> {
    requests: &'a Requests<T, E>,
    permit: mpsc::Permit<'a, AbortOnDropHandle<Result<T, E>>>,
}

impl<T: Send + 'static, E: From<RowsError> + Send + 'static> Requests<T, E> {
    /// Waits for a free place. Returns `None` if nobody waits for batches.
    pub async fn place(&self) -> Option<Place<'_, T, E>> {
        let permit = self.sender.reserve().await.ok()?;
        Some(Place {
            requests: self,
            permit,
        })
    }
}

impl<T: Send + 'static, E: From<RowsError> + Send + 'static> Place<'_, T, E> {
    /// Waits for memory and starts to fetch a batch. `finish` converts the fetched rows.
    pub async fn fetch(
        self,
        request: BatchRequest,
        finish: impl FnOnce(FetchedBatch, ReservedMemory) -> Result<T, E> + Send + 'static,
    ) {
        let Requests {
            source,
            memory,
            units,
            ..
        } = self.requests;
        let bytes = request.bytes(source.cache.as_deref().filter(|_| request.repeats));
        let needed = u32::try_from(bytes.div_ceil(RESERVATION_UNIT)).unwrap_or(u32::MAX);
        let Ok(reserved) = Arc::clone(memory).acquire_many_owned(needed.min(*units)).await else {
            return;
        };
        let source = source.clone();
        let fetch = async move { finish(source.rows(&request).await?, ReservedMemory(reserved)) };
        self.permit.send(AbortOnDropHandle::new(tokio::spawn(fetch)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::source;
    use frostline_client::{Fetcher, HostClient};
    use frostline_fake_host::numbered::{WIDTH, answer_all, samples};
    use frostline_fake_host::{FakeHost, extraction};
    use frostline_images::DecodePool;

    /// Prefetch of `s0`, `s1`, ... in batches of eight, with up to two batches ahead if `bytes` permit.
    fn prefetch(host: &FakeHost, count: usize, bytes: u64) -> Prefetch<SampleBatch, RowsError> {
        let rows = RowSource {
            fetcher: Some(Fetcher::new(8, DecodePool::start(1).unwrap())),
            cache: None,
        };
        let source = Source {
            request_samples: 3,
            ..source()
        };
        let hosts = HostClient::new(&host.url, None).unwrap().into();
        let batches = samples(count).chunks(8).map(Arc::from).collect();
        let limits = PrefetchLimits { batches: 2, bytes };
        Prefetch::of_samples(rows, limits, hosts, source.into(), batches)
    }

    fn numbers(batch: SampleBatch) -> Vec<usize> {
        let (rows, _) = batch.fetched.rows.unwrap().join(Ok::<_, RowsError>).unwrap();
        let values = rows.as_f32().unwrap().chunks(WIDTH);
        values.map(|row| row[0] as usize).collect()
    }

    #[tokio::test]
    async fn batches_come_in_order_with_their_samples() {
        let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
        let mut prefetch = prefetch(&host, 60, u64::MAX);
        let mut rows = Vec::new();
        while let Some(batch) = prefetch.next().await {
            let batch = batch.unwrap();
            assert_eq!(batch.samples.len(), batch.fetched.indices.len());
            rows.extend(numbers(batch));
        }
        assert_eq!(rows, (0..60).collect::<Vec<_>>());
        assert!(prefetch.next().await.is_none());
    }

    #[tokio::test]
    async fn a_batch_waits_for_the_memory_of_earlier_ones() {
        let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
        // Each batch is larger than the limit.
        let mut prefetch = prefetch(&host, 20, 1 << 12);
        // Poll once and drop the future before any data can arrive.
        assert!(futures::poll!(Box::pin(prefetch.next())).is_pending());
        let first = prefetch.next().await.unwrap().unwrap();
        assert_eq!(first.samples[0].sample.key, "s0", "nothing is lost");
        assert!(futures::poll!(Box::pin(prefetch.next())).is_pending());
        drop(first);
        let second = prefetch.next().await.unwrap().unwrap();
        assert_eq!(numbers(second), (8..16).collect::<Vec<_>>());
    }
}
