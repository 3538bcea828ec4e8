use crate::batch::Origin;
use crate::{BatchRows, RowCache, RowsError};
use frostline_client::{Fetched, Fetcher, Hosts, Source, Transfer, Weight};
use frostline_features::RowKey;
use frostline_tensor::{OpError, ShapeError, Tensor};
use frostline_wire::ObjectInfo;
use futures::TryFutureExt;
use futures::future::try_join_all;
use std::sync::Arc;

/// Source of rows: the cache and hosts.
#[derive(Clone)]
pub struct RowSource {
    /// Fetches rows from hosts. `None` if all rows should be cached.
    pub fetcher: Option<Fetcher>,
    /// Cache of rows at the freeze cut.
    pub cache: Option<Arc<RowCache>>,
}

/// A batch of samples.
#[derive(Clone)]
pub struct BatchRequest {
    /// Hosts to fetch from.
    pub hosts: Hosts,
    /// The samples by source, in order. The sources only differ in the view.
    pub parts: Vec<(Arc<Source>, Arc<[ObjectInfo]>)>,
    /// Whether later batches repeat the views, so that caching the rows is useful.
    pub repeats: bool,
}

/// Result of a [`BatchRequest`].
pub struct FetchedBatch {
    /// The rows, or `None` if all samples failed.
    pub rows: Option<BatchRows>,
    /// Ascending indices of the samples with a row.
    pub indices: Vec<usize>,
    /// Index and error of each failed sample.
    pub bad: Vec<(usize, OpError)>,
    /// Bytes and time that the rows from hosts needed.
    pub transfer: Transfer,
}

impl BatchRequest {
    /// Memory in bytes that the batch needs until the caller has used it.
    pub(crate) fn bytes(&self, cache: Option<&RowCache>) -> u64 {
        let samples = self.parts.iter().flat_map(|(_, samples)| samples.iter());
        let weight = Weight::sum(samples);
        let fetched = self
            .parts
            .first()
            .map_or(0, |(source, _)| source.batch_bytes(weight));
        let cached = cache.map_or(0, |cache| {
            cache.store().row_memory().saturating_mul(weight.samples)
        });
        fetched.max(cached)
    }

    fn len(&self) -> usize {
        self.parts.iter().map(|(_, samples)| samples.len()).sum()
    }
}

impl RowSource {
    /// Returns the rows of a batch. Cached rows with a wrong checksum are fetched.
    ///
    /// # Errors
    /// Returns the errors of [`Fetcher::fetch`], [`RowsError::NotCached`] without a fetcher, [`RowsError::Shape`] if rows
    /// of several sources differ in shape, or [`RowsError::Ended`] if a task is cancelled.
    pub async fn rows(&self, request: &BatchRequest) -> Result<FetchedBatch, RowsError> {
        let cache = self.cache.as_ref().filter(|_| request.repeats);
        let found = match cache {
            Some(cache) => CacheLookup::read(cache, request).await?,
            None => CacheLookup::default(),
        };
        let missing = found.missing(request.len());
        let mut origins = vec![None; request.len()];
        for position in &found.positions {
            if let Some(origin) = origins.get_mut(*position) {
                *origin = Some(Origin::Cached);
            }
        }
        let fetched = match missing.as_slice() {
            [] => None,
            missing => Some(self.fetch(request, missing).await?),
        };
        let (rows, bad, transfer) = match fetched {
            None => (None, Vec::new(), Transfer::default()),
            Some(fetched) => {
                for index in &fetched.indices {
                    let position = position_at(&missing, *index);
                    if let Some(origin) = origins.get_mut(position) {
                        *origin = Some(Origin::Fetched(found.keys.get(position).copied()));
                    }
                }
                let bad = fetched.bad.into_iter();
                let bad = bad.map(|(index, error)| (position_at(&missing, index), error));
                let rows = Some(fetched.rows).filter(|_| !fetched.indices.is_empty());
                (rows, bad.collect(), fetched.transfer)
            }
        };
        let indices = origins.iter().enumerate();
        let indices = indices.filter_map(|(index, origin)| origin.is_some().then_some(index));
        Ok(FetchedBatch {
            indices: indices.collect(),
            rows: BatchRows::new(
                rows,
                found.rows,
                origins.into_iter().flatten().collect(),
                cache.cloned(),
            ),
            bad,
            transfer,
        })
    }

    /// Fetches the samples at the positions `missing`, with a request for each source.
    async fn fetch(&self, request: &BatchRequest, missing: &[usize]) -> Result<Fetched, RowsError> {
        let fetcher = self.fetcher.as_ref().ok_or(RowsError::NotCached)?;
        let mut fetches = Vec::new();
        let mut rest = missing;
        let mut start = 0;
        for (source, all) in &request.parts {
            let end = start + all.len();
            let (here, after) = rest.split_at(rest.partition_point(|position| *position < end));
            let before = missing.len() - rest.len();
            let samples = here
                .iter()
                .filter_map(|position| all.get(position - start).cloned());
            let samples: Arc<[ObjectInfo]> = samples.collect();
            (rest, start) = (after, end);
            if !samples.is_empty() {
                let fetch = fetcher.fetch(&request.hosts, Arc::clone(source), samples);
                fetches.push(fetch.map_ok(move |fetched| (before, fetched)));
            }
        }
        Ok(joined(try_join_all(fetches).await?)?)
    }
}

/// Joins the results of all sources. Each is paired with the number of samples before it.
fn joined(mut parts: Vec<(usize, Fetched)>) -> Result<Fetched, ShapeError> {
    if parts.len() == 1
        && let Some((_, fetched)) = parts.pop()
    {
        return Ok(fetched);
    }
    let mut rows = Vec::new();
    let mut indices = Vec::new();
    let mut bad = Vec::new();
    let mut transfer = Transfer::default();
    for (before, fetched) in parts {
        indices.extend(fetched.indices.iter().map(|index| before + index));
        let failed = fetched.bad.into_iter();
        bad.extend(failed.map(|(index, error)| (before + index, error)));
        transfer += fetched.transfer;
        rows.push(fetched.rows);
    }
    Ok(Fetched {
        rows: Tensor::concat_rows(&rows)?,
        indices,
        bad,
        transfer,
    })
}

/// Result of looking up a batch in the cache.
#[derive(Default)]
struct CacheLookup {
    /// Cache keys of all samples. Empty if fetched rows are not cached.
    keys: Arc<[RowKey]>,
    rows: Option<Tensor>,
    /// Positions of these rows in the batch, ascending.
    positions: Vec<usize>,
}

impl CacheLookup {
    async fn read(cache: &Arc<RowCache>, request: &BatchRequest) -> Result<Self, RowsError> {
        let mut keys = Vec::with_capacity(request.len());
        for (source, samples) in &request.parts {
            keys.extend(cache.keys(&request.hosts, source, samples).await);
        }
        let keys: Arc<[RowKey]> = keys.into();
        let found = cache.find(Arc::clone(&keys)).await?;
        let accepts = request.parts.iter().all(|(source, _)| cache.accepts(source));
        Ok(Self {
            keys: if accepts { keys } else { Arc::default() },
            rows: found.rows,
            positions: found.places,
        })
    }

    /// Returns the positions below `count` that were not found, ascending.
    fn missing(&self, count: usize) -> Vec<usize> {
        (0..count)
            .filter(|position| self.positions.binary_search(position).is_err())
            .collect()
    }
}

/// Returns the position of the missing sample with this index, or `usize::MAX` if there is none.
fn position_at(missing: &[usize], index: usize) -> usize {
    missing.get(index).copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use frostline_client::{HostClient, RowKind};
    use frostline_fake_host::numbered::{WIDTH, answer_all, samples};
    use frostline_fake_host::{FakeHost, extraction};
    use frostline_features::{Cache, Provenance, Rounding};
    use frostline_images::DecodePool;
    use frostline_wire::{Encoding, Precision, Split, Terms};
    use std::sync::Mutex;

    const CUT: &str = "features";

    fn open_cache(folder: &std::path::Path) -> Arc<RowCache> {
        let split = Split::Cut(CUT.to_owned());
        let made = Provenance {
            model: "m".to_owned(),
            freeze: CUT.to_owned(),
            data: "data".to_owned(),
            layers: "l".to_owned(),
            guest: "g".to_owned(),
            parameters: String::new(),
            rounding: Rounding::for_split(Encoding::F32, &split, CUT),
            precision: Precision::default(),
            fixed_batch: None,
            library: "1".to_owned(),
            device: "cpu".to_owned(),
            exactly: None,
            shape: vec![WIDTH],
            tensors: Vec::new(),
        };
        let cache = Cache::new(folder.to_owned(), 1 << 20);
        RowCache::open(&cache, made, 10, Arc::new(|why| panic!("{why}")))
            .unwrap()
            .into()
    }

    /// Source of the rows of `s0`, `s1`, ...
    pub(crate) fn source() -> Source {
        Source {
            root: "data".to_owned(),
            split: Split::Cut(CUT.to_owned()),
            encoding: Encoding::F32,
            guest: None,
            model: None,
            parameters: String::new(),
            terms: Terms::default(),
            view: None,
            rows: RowKind::Values,
            shape: vec![WIDTH],
            tensors: Vec::new(),
            request_samples: 8,
        }
    }

    fn request(host: &FakeHost, first: usize, end: usize) -> BatchRequest {
        BatchRequest {
            hosts: HostClient::new(&host.url, None).unwrap().into(),
            parts: vec![(source().into(), samples(end)[first..].into())],
            repeats: true,
        }
    }

    /// Returns the numbers of the samples, and caches their rows.
    async fn numbers(source: &RowSource, request: &BatchRequest) -> Result<Vec<usize>, RowsError> {
        let fetched = source.rows(request).await?;
        let (rows, pending) = fetched.rows.unwrap().join(Ok::<_, RowsError>)?;
        let values = rows.as_f32().unwrap().chunks(WIDTH);
        let numbers = values.map(|row| row[0] as usize).collect();
        pending.cache(rows);
        Ok(numbers)
    }

    #[tokio::test]
    async fn cached_rows_are_not_fetched() {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&asked);
        let host = FakeHost::start(move |_, _, body| {
            let request = extraction(body);
            let keys = request.samples.iter().map(|sample| sample.sample.key.clone());
            log.lock().unwrap().extend(keys);
            answer_all(&request)
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let cache = open_cache(folder.path());
        let online = RowSource {
            fetcher: Some(Fetcher::new(8, DecodePool::start(1).unwrap())),
            cache: Some(Arc::clone(&cache)),
        };
        assert_eq!(numbers(&online, &request(&host, 1, 3)).await.unwrap(), [1, 2]);
        assert_eq!(
            numbers(&online, &request(&host, 0, 4)).await.unwrap(),
            [0, 1, 2, 3]
        );
        assert_eq!(*asked.lock().unwrap(), ["s1", "s2", "s0", "s3"]);
        let unrepeated = BatchRequest {
            repeats: false,
            ..request(&host, 0, 1)
        };
        assert_eq!(numbers(&online, &unrepeated).await.unwrap(), [0]);
        assert_eq!(asked.lock().unwrap().len(), 5);
        // Without a connection, all rows must be cached.
        let offline = RowSource {
            fetcher: None,
            cache: Some(cache),
        };
        assert_eq!(
            numbers(&offline, &request(&host, 0, 4)).await.unwrap(),
            [0, 1, 2, 3]
        );
        let error = numbers(&offline, &request(&host, 0, 5)).await.unwrap_err();
        assert!(matches!(error, RowsError::NotCached), "{error}");
        assert_eq!(asked.lock().unwrap().len(), 5);
    }
}
