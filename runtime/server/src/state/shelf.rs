//! All uploads of one kind. Bytes lie under `blobs/<kind>/<sha256>`, and `<kind>/<name>/<20-digit version>.json` says
//! which of them a name stands for; the newest version wins. Both are only ever created, the blob first, so a kill at
//! any instant leaves either the old state or the new one.

use super::StateError;
use bytes::Bytes;
use frostline_objects::Store;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Objects asked for at a time when the state is listed.
const PAGE: usize = 1000;

/// Tries to write a version while others write the same name.
const TRIES: usize = 16;

/// One version of a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored<F> {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) uploaded_at: u64,
    pub(crate) facts: F,
}

/// A version's record; without content the name was deleted.
#[derive(Serialize, Deserialize)]
struct Record<F> {
    content: Option<Stored<F>>,
}

/// What a name and a hash lead to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found<F> {
    /// The version asked for.
    Version(Arc<Stored<F>>),
    /// The name stands for other bytes.
    Other(Arc<Stored<F>>),
    /// No such name.
    Nothing,
}

/// Versions of a name by number; never empty.
type Versions<F> = BTreeMap<u64, Arc<Stored<F>>>;

/// All uploads of one kind.
pub(crate) struct Shelf<F> {
    kind: &'static str,
    store: Arc<Store>,
    names_limit: usize,
    versions_limit: usize,
    names: RwLock<BTreeMap<String, Versions<F>>>,
    /// Held by whoever writes, so that limits and sweeps see a quiet state.
    writing: tokio::sync::Mutex<()>,
}

impl<F: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync> Shelf<F> {
    /// Reads what is there.
    pub(crate) async fn open(
        store: Arc<Store>,
        kind: &'static str,
        names_limit: usize,
        versions_limit: usize,
    ) -> Result<Self, StateError> {
        let mut records: BTreeMap<String, BTreeMap<u64, Record<F>>> = BTreeMap::new();
        for key in keys_below(&store, kind).await? {
            let Some((name, number)) = parse_key(kind, &key) else {
                continue;
            };
            let bytes = store.read(&key, None).await?;
            let record = serde_json::from_slice(&bytes).map_err(|error| StateError::Record {
                key: key.clone(),
                detail: error.to_string(),
            })?;
            records.entry(name).or_default().insert(number, record);
        }
        let live = records.into_iter().map(|(name, records)| (name, live(records)));
        let names = RwLock::new(live.filter(|(_, versions)| !versions.is_empty()).collect());
        Ok(Self {
            kind,
            store,
            names_limit,
            versions_limit,
            names,
            writing: tokio::sync::Mutex::new(()),
        })
    }

    /// The newest version of a name, or the one with that hash.
    pub(crate) fn find(&self, name: &str, sha256: Option<&str>) -> Found<F> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let Some(newest) = names.get(name).and_then(|versions| versions.values().next_back()) else {
            return Found::Nothing;
        };
        let Some(sha256) = sha256 else {
            return Found::Version(Arc::clone(newest));
        };
        let wanted = names
            .get(name)
            .and_then(|versions| versions.values().rfind(|v| v.sha256 == sha256));
        wanted.map_or_else(
            || Found::Other(Arc::clone(newest)),
            |version| Found::Version(Arc::clone(version)),
        )
    }

    /// The newest version of every name.
    pub(crate) fn list(&self) -> Vec<(String, Arc<Stored<F>>)> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let newest = |(name, versions): (&String, &Versions<F>)| {
            versions
                .values()
                .next_back()
                .map(|version| (name.clone(), Arc::clone(version)))
        };
        names.iter().filter_map(newest).collect()
    }

    /// The bytes of a version.
    pub(crate) async fn blob(&self, sha256: &str) -> Result<Bytes, StateError> {
        Ok(self.store.read(&self.blob_key(sha256), None).await?)
    }

    /// Makes `bytes` the newest version of `name`; `false` when they already are.
    pub(crate) async fn put(
        &self,
        name: &str,
        sha256: &str,
        bytes: Bytes,
        facts: F,
    ) -> Result<(Arc<Stored<F>>, bool), StateError> {
        let _writing = self.writing.lock().await;
        if let Found::Version(newest) = self.find(name, None) {
            if newest.sha256 == sha256 {
                return Ok((newest, false));
            }
        } else if self.names.read().unwrap_or_else(PoisonError::into_inner).len() >= self.names_limit {
            return Err(StateError::TooMany {
                kind: self.kind,
                limit: self.names_limit,
            });
        }
        let stored = Stored {
            sha256: sha256.to_owned(),
            bytes: bytes.len() as u64,
            uploaded_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            facts,
        };
        self.create(&self.blob_key(sha256), bytes).await?;
        let number = self.append(name, Some(stored.clone())).await?;
        let stored = Arc::new(stored);
        let mut versions = self.versions(name);
        versions.insert(number, Arc::clone(&stored));
        let surplus: Vec<u64> = versions
            .keys()
            .copied()
            .take(versions.len().saturating_sub(self.versions_limit))
            .collect();
        let swept: Versions<F> = surplus
            .iter()
            .filter_map(|number| versions.remove(number).map(|version| (*number, version)))
            .collect();
        self.set(name, versions);
        self.sweep(name, &swept).await;
        Ok((stored, true))
    }

    /// Forgets all versions of a name; `false` when there are none.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool, StateError> {
        let _writing = self.writing.lock().await;
        let versions = self.versions(name);
        if versions.is_empty() {
            return Ok(false);
        }
        let tombstone = self.append(name, None).await?;
        self.set(name, Versions::new());
        self.sweep(name, &versions).await;
        self.discard(&record_key(self.kind, name, tombstone)).await;
        Ok(true)
    }

    /// Writes the next record of a name and returns its number.
    async fn append(&self, name: &str, content: Option<Stored<F>>) -> Result<u64, StateError> {
        let newest = self.versions(name).keys().next_back().copied().unwrap_or(0);
        let json = serde_json::to_vec(&Record { content }).map_err(|error| StateError::Record {
            key: name.to_owned(),
            detail: error.to_string(),
        })?;
        for number in (newest + 1..).take(TRIES) {
            if self
                .create(&record_key(self.kind, name, number), Bytes::from(json.clone()))
                .await?
            {
                return Ok(number);
            }
        }
        Err(StateError::Contended {
            kind: self.kind,
            name: name.to_owned(),
        })
    }

    /// Creates an object; `false` when there is one already.
    async fn create(&self, key: &str, bytes: Bytes) -> Result<bool, StateError> {
        match self.store.put_new(key, bytes).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_already_there() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes records nobody sees any more, then the bytes no version of any name stands for.
    async fn sweep(&self, name: &str, swept: &Versions<F>) {
        for (number, version) in swept {
            self.discard(&record_key(self.kind, name, *number)).await;
            if !self.uses(&version.sha256) {
                self.discard(&self.blob_key(&version.sha256)).await;
            }
        }
    }

    /// A leftover costs space, not correctness, so a failure is only logged.
    async fn discard(&self, key: &str) {
        if let Err(error) = self.store.delete(key).await {
            tracing::warn!(key, %error, "an old version could not be removed");
        }
    }

    fn uses(&self, sha256: &str) -> bool {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names
            .values()
            .flat_map(BTreeMap::values)
            .any(|version| version.sha256 == sha256)
    }

    fn versions(&self, name: &str) -> Versions<F> {
        self.names
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
            .unwrap_or_default()
    }

    fn set(&self, name: &str, versions: Versions<F>) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if versions.is_empty() {
            names.remove(name)
        } else {
            names.insert(name.to_owned(), versions)
        };
    }

    fn blob_key(&self, sha256: &str) -> String {
        format!("blobs/{}/{sha256}", self.kind)
    }
}

fn record_key(kind: &str, name: &str, number: u64) -> String {
    format!("{kind}/{name}/{number:020}.json")
}

fn parse_key(kind: &str, key: &str) -> Option<(String, u64)> {
    let (name, file) = key.strip_prefix(kind)?.strip_prefix('/')?.split_once('/')?;
    let number = file
        .strip_suffix(".json")
        .filter(|digits| digits.len() == 20)?
        .parse()
        .ok()?;
    Some((name.to_owned(), number))
}

/// The versions after the last deletion.
fn live<F>(records: BTreeMap<u64, Record<F>>) -> Versions<F> {
    let mut versions = Versions::new();
    for (number, record) in records {
        match record.content {
            Some(stored) => drop(versions.insert(number, Arc::new(stored))),
            None => versions.clear(),
        }
    }
    versions
}

/// Keys under `kind/`, all pages.
async fn keys_below(store: &Store, kind: &str) -> Result<Vec<String>, StateError> {
    let mut keys = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.list(after.as_deref(), PAGE).await?;
        let below = |key: &String| parse_key(kind, key).is_some();
        keys.extend(page.objects.into_iter().map(|object| object.key).filter(below));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shelf(folder: &std::path::Path, versions: usize) -> Shelf<u32> {
        let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
        Shelf::open(store, "things", 2, versions).await.unwrap()
    }

    async fn put(shelf: &Shelf<u32>, name: &str, sha256: &str) -> bool {
        shelf
            .put(name, sha256, Bytes::from(sha256.to_owned()), 1)
            .await
            .unwrap()
            .1
    }

    fn sha<F>(found: Found<F>) -> Option<String> {
        match found {
            Found::Version(stored) => Some(stored.sha256.clone()),
            _ => None,
        }
    }

    #[tokio::test]
    async fn the_newest_wins_older_ones_stay_reachable_and_all_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let first = shelf(folder.path(), 2).await;
        assert!(put(&first, "a", "one").await);
        assert!(!put(&first, "a", "one").await);
        assert!(put(&first, "a", "two").await);
        for shelf in [&first, &shelf(folder.path(), 2).await] {
            assert_eq!(sha(shelf.find("a", None)).as_deref(), Some("two"));
            assert_eq!(sha(shelf.find("a", Some("one"))).as_deref(), Some("one"));
            assert!(matches!(shelf.find("a", Some("three")), Found::Other(_)));
            assert_eq!(shelf.find("b", None), Found::Nothing);
            assert_eq!(shelf.blob("one").await.unwrap(), "one");
        }
    }

    #[tokio::test]
    async fn versions_beyond_the_limit_go_with_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = shelf(folder.path(), 1).await;
        assert!(put(&shelf, "a", "one").await);
        assert!(put(&shelf, "b", "one").await);
        assert!(put(&shelf, "a", "two").await);
        assert_eq!(shelf.blob("one").await.unwrap(), "one", "b still stands for it");
        assert!(put(&shelf, "b", "two").await);
        assert!(shelf.blob("one").await.is_err());
        assert!(
            shelf.put("c", "x", Bytes::new(), 1).await.is_err(),
            "two names are allowed"
        );
    }

    #[tokio::test]
    async fn deleted_is_gone_and_may_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = shelf(folder.path(), 4).await;
        assert!(put(&first, "a", "one").await);
        assert!(first.delete("a").await.unwrap());
        assert!(!first.delete("a").await.unwrap());
        assert_eq!(shelf(folder.path(), 4).await.find("a", None), Found::Nothing);
        assert!(put(&first, "a", "one").await);
        assert_eq!(
            sha(shelf(folder.path(), 4).await.find("a", None)).as_deref(),
            Some("one")
        );
    }

    #[tokio::test]
    async fn a_name_deleted_by_a_record_stays_deleted_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        assert!(put(&shelf(folder.path(), 4).await, "a", "one").await);
        let tombstone = folder.path().join("things/a/00000000000000000002.json");
        std::fs::write(tombstone, "{\"content\":null}").unwrap();
        assert_eq!(shelf(folder.path(), 4).await.find("a", None), Found::Nothing);
    }
}
