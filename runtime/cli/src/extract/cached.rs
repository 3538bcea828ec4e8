//! Batches of activations in the order of the listing. Cached activations are read from this machine's disk
//! and the others are requested from hosts.

use anyhow::{Context, Result};
use frostline_client::{Fetched, Fetcher, Hosts, Pass, Passed, Source};
use frostline_features::{Cache, FoundRows, Provenance, RowKey, RowKeys, Stopped, Store};
use frostline_tensor::{OpError, Tensor};
use frostline_wire::ObjectInfo;
use std::collections::VecDeque;
use std::sync::Arc;

/// Cached activations at one cut, shared with jobs and other extractions.
pub(super) struct CachedRows {
    store: Store,
    keys: RowKeys,
}

impl CachedRows {
    /// Opens the store for activations with this provenance, with space for `rows` of them. Calls `stopped`
    /// if caching stops because of an error.
    pub(super) fn open(cache: &Cache, made: &Provenance, rows: u64, stopped: Stopped) -> Result<Self> {
        let subject = made.subject();
        let store = cache.open(&subject, &made.row(), rows, stopped);
        let mut run = [0; 16];
        getrandom::fill(&mut run).context("no random numbers")?;
        Ok(Self {
            store: store.context("cannot cache features")?,
            keys: RowKeys::new(&subject.data, None, run),
        })
    }

    fn keys(&self, samples: &[ObjectInfo]) -> Vec<RowKey> {
        let key = |sample: &ObjectInfo| {
            let content = self.store.content(&self.keys, sample);
            self.keys.key_of(&sample.sample, content)
        };
        samples.iter().map(key).collect()
    }

    /// Has the hosts hash the files that changed since their content was last hashed.
    async fn hash_new(&self, remote: &Remote, samples: &[ObjectInfo]) {
        let new = self.store.unhashed(&self.keys, samples);
        let Source {
            root,
            request_samples,
            ..
        } = &*remote.source;
        let hashes = remote.hosts.digests(root, &new, *request_samples).await;
        self.store.record_contents(&self.keys, &new, &hashes);
    }

    /// Returns the indices of `samples` that are not cached.
    fn absent(&self, samples: &[ObjectInfo]) -> Vec<usize> {
        let has = self.store.has(&self.keys(samples)).into_iter().enumerate();
        has.filter(|(_, has)| !has).map(|(place, _)| place).collect()
    }
}

/// A batch that has not been returned yet.
struct Waiting {
    samples: Arc<[ObjectInfo]>,
    /// Indices of samples to fetch.
    absent: Vec<usize>,
}

/// Iterates over all batches in order.
pub(super) struct Batches {
    cached: Option<CachedRows>,
    waiting: VecDeque<Waiting>,
    pass: Pass,
    remote: Remote,
}

/// Access to activations that are not cached.
#[derive(Clone)]
pub(super) struct Remote {
    pub(super) fetcher: Fetcher,
    pub(super) hosts: Hosts,
    pub(super) source: Arc<Source>,
}

impl Batches {
    /// Starts to fetch the activations of `samples` that are not cached, in batches of `batch` samples.
    pub(super) fn new(
        samples: &[ObjectInfo],
        batch: usize,
        cached: Option<CachedRows>,
        remote: Remote,
    ) -> Self {
        let waiting = samples.chunks(batch).map(|samples| Waiting {
            absent: match &cached {
                Some(cached) => cached.absent(samples),
                None => (0..samples.len()).collect(),
            },
            samples: samples.into(),
        });
        let waiting: VecDeque<Waiting> = waiting.collect();
        let fetched = waiting.iter().filter(|batch| !batch.absent.is_empty());
        let fetched = fetched
            .map(|batch| chosen(&batch.samples, &batch.absent))
            .collect();
        let Remote {
            fetcher,
            hosts,
            source,
        } = remote.clone();
        Self {
            pass: Pass::new(fetcher, hosts, source, fetched, super::PREFETCH),
            cached,
            waiting,
            remote,
        }
    }

    /// Number of cached activations.
    pub(super) fn cached_rows(&self) -> usize {
        let rows = self
            .waiting
            .iter()
            .map(|batch| batch.samples.len() - batch.absent.len());
        rows.sum()
    }

    /// Returns the next batch, or `None` after the last batch.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Pass::next`].
    pub(super) async fn next(&mut self) -> Option<Result<BatchRows>> {
        let waiting = self.waiting.pop_front()?;
        Some(self.rows(waiting).await)
    }

    async fn rows(&mut self, Waiting { samples, absent }: Waiting) -> Result<BatchRows> {
        let mut batch = BatchRows::new(samples, &self.remote.source.shape);
        if !absent.is_empty() {
            let Passed { fetched, .. } = self.pass.next().await.context("the batches ended early")??;
            batch.add(&absent, &fetched);
            self.cache(&batch.samples, &absent, fetched).await;
        }
        let lost = self.read_cached(&mut batch, &absent);
        if !lost.is_empty() {
            let Remote {
                fetcher,
                hosts,
                source,
            } = &self.remote;
            let samples = chosen(&batch.samples, &lost);
            let fetched = fetcher.fetch(hosts, Arc::clone(source), samples).await?;
            batch.add(&lost, &fetched);
            self.cache(&batch.samples, &lost, fetched).await;
        }
        Ok(batch)
    }

    /// Adds the cached activations to the batch. Returns the indices of samples whose cached activations can
    /// no longer be read or have a wrong checksum.
    fn read_cached(&self, batch: &mut BatchRows, absent: &[usize]) -> Vec<usize> {
        let Some(cached) = &self.cached else {
            return Vec::new();
        };
        let known = (0..batch.samples.len()).filter(|place| !absent.contains(place));
        let mut known: Vec<usize> = known.collect();
        let keys = cached.keys(&chosen(&batch.samples, &known));
        let FoundRows { rows, places } = tokio::task::block_in_place(|| cached.store.read(&keys));
        let found: Vec<usize> = places
            .iter()
            .filter_map(|index| known.get(*index).copied())
            .collect();
        if let Some(rows) = rows {
            batch.set(found.iter().copied(), &rows);
        }
        known.retain(|place| !found.contains(place));
        known
    }

    /// Caches the fetched activations of the samples at `places`.
    async fn cache(&self, samples: &[ObjectInfo], places: &[usize], fetched: Fetched) {
        if let Some(cached) = &self.cached {
            let samples = chosen(samples, places);
            cached.hash_new(&self.remote, &samples).await;
            let keys = cached.keys(&samples);
            let kept = fetched.indices.iter().map(|kept| keys.get(*kept).copied());
            cached.store.keep(kept.collect(), fetched.rows);
        }
    }

    /// Returns messages about cache problems since the last call.
    pub(super) fn news(&self) -> Vec<String> {
        let cached = self.cached.as_ref();
        cached
            .map(|cached| cached.store.take_warnings())
            .unwrap_or_default()
    }
}

fn chosen(samples: &[ObjectInfo], places: &[usize]) -> Arc<[ObjectInfo]> {
    let chosen = places.iter().filter_map(|place| samples.get(*place).cloned());
    chosen.collect()
}

/// Activations of a batch.
pub(super) struct BatchRows {
    pub(super) samples: Arc<[ObjectInfo]>,
    /// Number of values in an activation.
    width: usize,
    rows: Vec<Option<Vec<f32>>>,
    /// Failed samples and the errors.
    pub(super) bad: Vec<(usize, OpError)>,
}

impl BatchRows {
    pub(super) fn new(samples: Arc<[ObjectInfo]>, shape: &[usize]) -> Self {
        Self {
            rows: vec![None; samples.len()],
            samples,
            width: shape.iter().product::<usize>().max(1),
            bad: Vec::new(),
        }
    }

    /// Adds the fetched activations of the samples at `places`.
    pub(super) fn add(&mut self, places: &[usize], fetched: &Fetched) {
        let kept = fetched
            .indices
            .iter()
            .filter_map(|kept| places.get(*kept).copied());
        self.set(kept, &fetched.rows);
        let bad = fetched.bad.iter();
        let bad = bad.filter_map(|(index, why)| Some((*places.get(*index)?, why.clone())));
        self.bad.extend(bad);
    }

    fn set(&mut self, places: impl Iterator<Item = usize>, rows: &Tensor) {
        let rows = rows.as_f32().unwrap_or_default().chunks_exact(self.width);
        for (place, row) in places.zip(rows) {
            if let Some(to) = self.rows.get_mut(place) {
                *to = Some(row.to_vec());
            }
        }
    }

    /// Returns the keys and values of all activations, in order.
    pub(super) fn rows(&self) -> (Vec<&str>, Vec<f32>) {
        let keys = self.samples.iter().map(|sample| sample.sample.key.as_str());
        let with_row = keys
            .zip(&self.rows)
            .filter_map(|(key, row)| Some((key, row.as_ref()?)));
        let (keys, rows): (Vec<_>, Vec<_>) = with_row.unzip();
        let values = rows.into_iter().flatten().copied().collect();
        (keys, values)
    }
}
