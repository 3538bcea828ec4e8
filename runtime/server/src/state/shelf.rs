//! All uploads of one kind. A name of a tenant is a document of its last versions, and each version's bytes lie in an object of their
//! own, `blobs/<kind>/<tenant>/<sha256>-<random>`, written before the document. As no two uploads share an object, one may be removed
//! without looking at what others do.

use super::StateError;
use super::documents::Documents;
use bytes::Bytes;
use frostline_objects::Store;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// One version of a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored<F> {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) uploaded_at: u64,
    /// Where its bytes are.
    blob: String,
    pub(crate) facts: F,
}

/// The versions of a name, oldest first; never empty.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Versions<F>(Vec<Arc<Stored<F>>>);

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

/// All uploads of one kind.
pub(crate) struct Shelf<F> {
    kind: &'static str,
    store: Arc<Store>,
    names_limit: usize,
    versions_limit: usize,
    documents: Arc<Documents<Versions<F>>>,
}

/// One tenant's uploads: all that is seen of a shelf by whoever serves that tenant.
pub(crate) struct Owned<'a, F> {
    shelf: &'a Shelf<F>,
    tenant: &'a str,
}

/// What uploads of one kind say of themselves.
pub(crate) trait Facts: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync {}

impl<F: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync> Facts for F {}

impl<F: Facts> Shelf<F> {
    /// Uploads as `documents` know them.
    pub(crate) fn new(
        kind: &'static str,
        store: Arc<Store>,
        documents: Arc<Documents<Versions<F>>>,
        names_limit: usize,
        versions_limit: usize,
    ) -> Self {
        Self {
            kind,
            store,
            names_limit,
            versions_limit: versions_limit.max(1),
            documents,
        }
    }

    /// What a tenant has here.
    pub(crate) fn of<'a>(&'a self, tenant: &'a str) -> Owned<'a, F> {
        Owned { shelf: self, tenant }
    }

    /// The bytes of a version, whosever it is.
    pub(crate) async fn blob(&self, sha256: &str) -> Result<Bytes, StateError> {
        let version = self.documents.list("").into_iter().find_map(|(_, versions)| {
            let found = versions.0.iter().find(|version| version.sha256 == sha256);
            found.cloned()
        });
        let version = version.ok_or_else(|| StateError::Gone {
            kind: self.kind,
            sha256: sha256.to_owned(),
        })?;
        Ok(self.store.read(&version.blob, None).await?)
    }

    /// A leftover costs space, not correctness, so a failure is only logged.
    async fn discard(&self, key: &str) {
        if let Err(error) = self.store.delete(key).await
            && !error.is_not_found()
        {
            tracing::warn!(key, %error, "an old version could not be removed");
        }
    }
}

impl<F: Facts> Owned<'_, F> {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.tenant)
    }

    /// The newest version of a name, or the one with that hash.
    pub(crate) fn find(&self, name: &str, sha256: Option<&str>) -> Found<F> {
        let Some(versions) = self.shelf.documents.get(&self.key(name)) else {
            return Found::Nothing;
        };
        let Some(newest) = versions.0.last() else {
            return Found::Nothing;
        };
        let Some(sha256) = sha256 else {
            return Found::Version(Arc::clone(newest));
        };
        let wanted = versions.0.iter().rfind(|version| version.sha256 == sha256);
        wanted.map_or_else(
            || Found::Other(Arc::clone(newest)),
            |version| Found::Version(Arc::clone(version)),
        )
    }

    /// The newest version of every name.
    pub(crate) fn list(&self) -> Vec<(String, Arc<Stored<F>>)> {
        let prefix = self.key("");
        let newest = |(key, versions): (String, Arc<Versions<F>>)| {
            let name = key.strip_prefix(&prefix)?.to_owned();
            Some((name, versions.0.last().cloned()?))
        };
        let all = self.shelf.documents.list(&prefix);
        all.into_iter().filter_map(newest).collect()
    }

    /// Bytes of all versions.
    pub(crate) fn bytes(&self) -> u64 {
        let all = self.shelf.documents.list(&self.key(""));
        let versions = all.iter().flat_map(|(_, versions)| &versions.0);
        versions.map(|version| version.bytes).sum()
    }

    /// Makes `bytes` the newest version of `name`; `false` when they already are.
    pub(crate) async fn put(
        &self,
        name: &str,
        sha256: &str,
        bytes: Bytes,
        facts: F,
    ) -> Result<(Arc<Stored<F>>, bool), StateError> {
        match self.find(name, None) {
            Found::Version(newest) if newest.sha256 == sha256 => return Ok((newest, false)),
            Found::Nothing if self.shelf.documents.list(&self.key("")).len() >= self.shelf.names_limit => {
                return Err(StateError::TooMany {
                    kind: self.shelf.kind,
                    limit: self.shelf.names_limit,
                });
            }
            _ => {}
        }
        let stored = Arc::new(Stored {
            sha256: sha256.to_owned(),
            bytes: bytes.len() as u64,
            uploaded_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            blob: format!("blobs/{}/{}/{sha256}-{}", self.shelf.kind, self.tenant, unique()?),
            facts,
        });
        self.shelf.store.put_new(&stored.blob, bytes).await?;
        let (key, mut surplus) = (self.key(name), Vec::new());
        let updated = self.shelf.documents.update(&key, |now| {
            let mut versions = now.map_or_else(Vec::new, |versions| versions.0.clone());
            versions.push(Arc::clone(&stored));
            surplus = versions
                .drain(..versions.len().saturating_sub(self.shelf.versions_limit))
                .collect();
            Ok::<_, StateError>(Some(Versions(versions)))
        });
        if let Err(error) = updated.await {
            self.shelf.discard(&stored.blob).await;
            return Err(error);
        }
        for version in surplus {
            self.shelf.discard(&version.blob).await;
        }
        Ok((stored, true))
    }

    /// Forgets all versions of a name; `false` when there are none.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool, StateError> {
        let mut deleted = Vec::new();
        let forget = |now: Option<&Versions<F>>| {
            deleted = now.map_or_else(Vec::new, |versions| versions.0.clone());
            Ok::<_, StateError>(None)
        };
        self.shelf.documents.update(&self.key(name), forget).await?;
        for version in &deleted {
            self.shelf.discard(&version.blob).await;
        }
        Ok(!deleted.is_empty())
    }
}

/// What no other upload has.
fn unique() -> Result<String, StateError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| StateError::Random {
        detail: error.to_string(),
    })?;
    Ok(hex::encode(random))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::changes::Changes;

    async fn shelf(folder: &std::path::Path, versions: usize) -> Shelf<u32> {
        let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
        let changes = Arc::new(Changes::open(Arc::clone(&store)).await.unwrap());
        let documents = Documents::open((Arc::clone(&store), changes, "things"))
            .await
            .unwrap();
        Shelf::new("things", store, Arc::new(documents), 2, versions)
    }

    async fn put(shelf: &Shelf<u32>, name: &str, sha256: &str) -> bool {
        shelf
            .of("acme")
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
            assert_eq!(sha(shelf.of("acme").find("a", None)).as_deref(), Some("two"));
            assert_eq!(
                sha(shelf.of("acme").find("a", Some("one"))).as_deref(),
                Some("one")
            );
            assert!(matches!(
                shelf.of("acme").find("a", Some("three")),
                Found::Other(_)
            ));
            assert_eq!(shelf.of("acme").find("b", None), Found::Nothing);
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
            shelf.of("acme").put("c", "x", Bytes::new(), 1).await.is_err(),
            "two names are allowed"
        );
    }

    #[tokio::test]
    async fn deleted_is_gone_and_may_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = shelf(folder.path(), 4).await;
        assert!(put(&first, "a", "one").await);
        assert!(first.of("acme").delete("a").await.unwrap());
        assert!(!first.of("acme").delete("a").await.unwrap());
        assert_eq!(
            shelf(folder.path(), 4).await.of("acme").find("a", None),
            Found::Nothing
        );
        assert!(put(&first, "a", "one").await);
        assert_eq!(
            sha(shelf(folder.path(), 4).await.of("acme").find("a", None)).as_deref(),
            Some("one")
        );
    }

    #[tokio::test]
    async fn bytes_go_with_their_versions_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let first = shelf(folder.path(), 1).await;
        assert!(put(&first, "a", "one").await);
        assert!(put(&first, "a", "two").await);
        assert!(put(&first, "b", "two").await);
        assert!(first.of("acme").delete("b").await.unwrap());
        let blobs = || {
            std::fs::read_dir(folder.path().join("blobs/things/acme"))
                .unwrap()
                .count()
        };
        assert_eq!(blobs(), 1);
        assert_eq!(first.blob("two").await.unwrap(), "two");
        assert!(matches!(first.blob("one").await, Err(StateError::Gone { .. })));
    }

    #[tokio::test]
    async fn a_tenant_sees_its_own_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = shelf(folder.path(), 4).await;
        for (tenant, sha256) in [("acme", "one"), ("acme2", "two")] {
            let bytes = Bytes::from(sha256);
            shelf.of(tenant).put("a", sha256, bytes, 1).await.unwrap();
        }
        assert_eq!(sha(shelf.of("acme").find("a", None)).as_deref(), Some("one"));
        assert!(
            matches!(shelf.of("acme").find("a", Some("two")), Found::Other(stored) if stored.sha256 == "one")
        );
        assert_eq!(shelf.of("other").find("a", None), Found::Nothing);
        assert_eq!(shelf.of("acme").list().len(), 1);
        assert!(!shelf.of("other").delete("a").await.unwrap());
        assert!(shelf.of("acme").delete("a").await.unwrap());
        assert_eq!(sha(shelf.of("acme2").find("a", None)).as_deref(), Some("two"));
        assert_eq!(shelf.blob("two").await.unwrap(), "two");
    }
}
