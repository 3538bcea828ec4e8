use crate::RowsError;
use frostline_client::{Hosts, Source};
use frostline_features::{
    Cache, Content, FeatureError, FoundRows, Provenance, Rounding, RowKey, RowKeys, Stopped, Store,
};
use frostline_wire::{ObjectInfo, View};
use std::sync::Arc;

/// Cache of rows at the freeze cut, backed by a store shared between programs.
pub struct RowCache {
    store: Store,
    /// The data root of the samples.
    root: String,
    /// Random number of this program. Objects without an etag are cached only for this program.
    run: [u8; 16],
    freeze: String,
    rounding: Rounding,
}

impl RowCache {
    /// Opens the store for rows with this provenance, and evicts others to make room for `rows` of them. Calls
    /// `stopped` if caching stops because of an error. Blocks.
    ///
    /// # Errors
    /// Returns [`FeatureError`] if the files cannot be used.
    pub fn open(cache: &Cache, made: Provenance, rows: u64, stopped: Stopped) -> Result<Self, FeatureError> {
        let subject = made.subject();
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|error| FeatureError::Io {
            doing: "reading random numbers for",
            path: cache.path().to_owned(),
            source: error.into(),
        })?;
        Ok(Self {
            store: cache.open(&subject, &made.row(), rows, stopped)?,
            root: subject.data,
            run,
            freeze: made.freeze,
            rounding: made.rounding,
        })
    }

    /// Counts the cached rows of `samples`. A file that must be hashed before its row is used counts as cached if any
    /// content of it is.
    pub fn count(&self, samples: impl Iterator<Item = ObjectInfo>, view: Option<&View>) -> u64 {
        let keys = self.keys_of(view);
        let mut known = Vec::new();
        let mut unhashed = Vec::new();
        for sample in samples {
            match self.store.content(&keys, &sample) {
                Content::Unknown => unhashed.push(keys.key_of(&sample.sample, Content::Hash(0))),
                content => known.push(keys.key_of(&sample.sample, content)),
            }
        }
        (self.store.count(known.iter()) + self.store.count_samples(unhashed.iter())) as u64
    }

    /// Returns the store of the rows.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Finds the rows that other programs cached since the last call. If this fails, the known rows remain available.
    ///
    /// # Errors
    /// Returns [`RowsError::Ended`] if the task is cancelled.
    pub async fn refresh(self: &Arc<Self>) -> Result<(), RowsError> {
        let cache = Arc::clone(self);
        blocking(move || _ = cache.store.refresh()).await
    }

    fn keys_of(&self, view: Option<&View>) -> RowKeys {
        RowKeys::new(&self.root, view, self.run)
    }

    /// Returns the keys of `samples` in the view of `source`. `hosts` hash the files that changed since their content
    /// was last hashed.
    pub(crate) async fn keys(&self, hosts: &Hosts, source: &Source, samples: &[ObjectInfo]) -> Vec<RowKey> {
        let keys = self.keys_of(source.view.as_ref());
        let new = self.store.unhashed(&keys, samples);
        if !new.is_empty() {
            let hashes = hosts.digests(&source.root, &new, source.request_samples).await;
            self.store.record_contents(&keys, &new, &hashes);
        }
        samples
            .iter()
            .map(|sample| keys.key_of(&sample.sample, self.store.content(&keys, sample)))
            .collect()
    }

    /// Returns true if activations from `source` are as precise as the store's.
    pub(crate) fn accepts(&self, source: &Source) -> bool {
        let rounding = Rounding::for_split(source.encoding, &source.split, &self.freeze);
        self.rounding.accepts(&rounding)
    }

    pub(crate) async fn find(self: &Arc<Self>, keys: Arc<[RowKey]>) -> Result<FoundRows, RowsError> {
        let cache = Arc::clone(self);
        blocking(move || cache.store.read(&keys)).await
    }
}

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowCache")
            .field("root", &self.root)
            .field("rounding", &self.rounding)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "clients and trainers have no tenants")]
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RowsError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| RowsError::Ended {
        part: "feature cache",
    })
}
