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

/// Whose uploads all tenants may use. No tenant's name begins like this.
pub(crate) const SHARED: &str = "_shared";

/// What a name stands for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Written<F>", into = "Written<F>", bound = "F: Facts")]
pub(crate) struct Versions<F> {
    /// Oldest first; never empty.
    versions: Vec<Arc<Stored<F>>>,
    /// Whether the name is refused, whatever its versions.
    disabled: bool,
}

/// [`Versions`] as they are stored: those of a name that is not disabled alone, as they always were.
#[derive(Serialize, Deserialize)]
#[serde(untagged, bound = "F: Facts")]
enum Written<F> {
    Enabled(Vec<Arc<Stored<F>>>),
    Marked {
        versions: Vec<Arc<Stored<F>>>,
        disabled: bool,
    },
}

impl<F> From<Written<F>> for Versions<F> {
    fn from(written: Written<F>) -> Self {
        let (versions, disabled) = match written {
            Written::Enabled(versions) => (versions, false),
            Written::Marked { versions, disabled } => (versions, disabled),
        };
        Self { versions, disabled }
    }
}

impl<F> From<Versions<F>> for Written<F> {
    fn from(Versions { versions, disabled }: Versions<F>) -> Self {
        if disabled {
            Self::Marked { versions, disabled }
        } else {
            Self::Enabled(versions)
        }
    }
}

/// A name with all its versions, as an admin looks at it.
pub(crate) struct Named<F> {
    pub(crate) owner: String,
    pub(crate) name: String,
    /// Oldest first; never empty.
    pub(crate) versions: Vec<Arc<Stored<F>>>,
    pub(crate) disabled: bool,
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

/// All uploads of one kind.
pub(crate) struct Shelf<F> {
    kind: &'static str,
    store: Arc<Store>,
    names_limit: usize,
    versions_limit: usize,
    documents: Arc<Documents<Versions<F>>>,
}

/// The uploads of one owner, a tenant or [`SHARED`]: all that is seen of a shelf by whoever serves that owner.
pub(crate) struct Owned<'a, F> {
    shelf: &'a Shelf<F>,
    owner: &'a str,
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

    /// What a tenant has here, or what is [`SHARED`].
    pub(crate) fn of<'a>(&'a self, owner: &'a str) -> Owned<'a, F> {
        Owned { shelf: self, owner }
    }

    /// All names of all owners.
    pub(crate) fn all(&self) -> Vec<Named<F>> {
        self.names("")
    }

    fn names(&self, prefix: &str) -> Vec<Named<F>> {
        let named = |(key, versions): (String, Arc<Versions<F>>)| {
            let (owner, name) = key.split_once('/')?;
            Some(Named {
                owner: owner.to_owned(),
                name: name.to_owned(),
                versions: versions.versions.clone(),
                disabled: versions.disabled,
            })
        };
        let all = self.documents.list(prefix);
        all.into_iter().filter_map(named).collect()
    }

    /// The bytes of a version, whosever it is.
    pub(crate) async fn blob(&self, sha256: &str) -> Result<Bytes, StateError> {
        let version = self.documents.list("").into_iter().find_map(|(_, versions)| {
            let found = versions.versions.iter().find(|version| version.sha256 == sha256);
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
        format!("{}/{name}", self.owner)
    }

    /// The newest version of a name, or the one with that hash.
    pub(crate) fn find(&self, name: &str, sha256: Option<&str>) -> Found<F> {
        let Some(versions) = self.shelf.documents.get(&self.key(name)) else {
            return Found::Nothing;
        };
        let Some(newest) = versions.versions.last() else {
            return Found::Nothing;
        };
        let Some(sha256) = sha256 else {
            return Found::Version(Arc::clone(newest));
        };
        let wanted = versions.versions.iter().rfind(|version| version.sha256 == sha256);
        wanted.map_or_else(
            || Found::Other(Arc::clone(newest)),
            |version| Found::Version(Arc::clone(version)),
        )
    }

    /// The newest version of every name.
    pub(crate) fn list(&self) -> Vec<(String, Arc<Stored<F>>)> {
        let newest = |named: Named<F>| Some((named.name, named.versions.last().cloned()?));
        self.names().into_iter().filter_map(newest).collect()
    }

    /// Every name with all its versions.
    pub(crate) fn names(&self) -> Vec<Named<F>> {
        self.shelf.names(&self.key(""))
    }

    /// Whether the name is there and refused.
    pub(crate) fn disabled(&self, name: &str) -> bool {
        let versions = self.shelf.documents.get(&self.key(name));
        versions.is_some_and(|versions| versions.disabled)
    }

    /// Refuses a name, or no longer; `false` when there is no such name. What is uploaded under it later is refused as well.
    pub(crate) async fn disable(&self, name: &str, disabled: bool) -> Result<bool, StateError> {
        let key = self.key(name);
        // Another host may have changed it a moment ago.
        self.shelf.documents.refresh(&key).await?;
        let mark = |now: Option<&Versions<F>>| {
            let versions = now.map(|versions| versions.versions.clone());
            Ok::<_, StateError>(versions.map(|versions| Versions { versions, disabled }))
        };
        Ok(self.shelf.documents.update(&key, mark).await?.is_some())
    }

    /// Bytes of all versions.
    pub(crate) fn bytes(&self) -> u64 {
        let all = self.shelf.documents.list(&self.key(""));
        let versions = all.iter().flat_map(|(_, versions)| &versions.versions);
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
            blob: format!("blobs/{}/{}/{sha256}-{}", self.shelf.kind, self.owner, unique()?),
            facts,
        });
        self.shelf.store.put_new(&stored.blob, bytes).await?;
        let (key, mut surplus) = (self.key(name), Vec::new());
        let updated = self.shelf.documents.update(&key, |now| {
            let mut versions = now.map_or_else(Vec::new, |versions| versions.versions.clone());
            versions.push(Arc::clone(&stored));
            surplus = versions
                .drain(..versions.len().saturating_sub(self.shelf.versions_limit))
                .collect();
            let disabled = now.is_some_and(|versions| versions.disabled);
            Ok::<_, StateError>(Some(Versions { versions, disabled }))
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
        self.forget(name, |_| Ok(())).await
    }

    /// The same for a name's owner, who cannot undo by it what an admin did.
    ///
    /// # Errors
    /// [`StateError::Disabled`].
    pub(crate) async fn withdraw(&self, name: &str) -> Result<bool, StateError> {
        let kind = self.shelf.kind;
        let check = |versions: &Versions<F>| match versions.disabled {
            true => Err(StateError::Disabled {
                kind,
                name: name.to_owned(),
            }),
            false => Ok(()),
        };
        self.forget(name, check).await
    }

    async fn forget(
        &self,
        name: &str,
        check: impl Fn(&Versions<F>) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let mut deleted = Vec::new();
        let forget = |now: Option<&Versions<F>>| {
            now.map_or(Ok(()), &check)?;
            deleted = now.map_or_else(Vec::new, |versions| versions.versions.clone());
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
    async fn a_disabled_name_stays_so_whatever_is_uploaded_and_wherever_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let first = shelf(folder.path(), 4).await;
        assert!(put(&first, "a", "one").await);
        assert!(!first.of("acme").disabled("a"));
        assert!(first.of("acme").disable("a", true).await.unwrap());
        assert!(
            !first.of("acme").disable("b", true).await.unwrap(),
            "no such name"
        );
        assert!(!first.of("acme").disabled("b"));
        assert!(put(&first, "a", "two").await);
        let refused = first.of("acme").withdraw("a").await;
        assert!(matches!(refused, Err(StateError::Disabled { .. })), "{refused:?}");
        for shelf in [&first, &shelf(folder.path(), 4).await] {
            assert!(shelf.of("acme").disabled("a"));
            assert_eq!(sha(shelf.of("acme").find("a", None)).as_deref(), Some("two"));
        }
        assert!(first.of("acme").disable("a", false).await.unwrap());
        assert!(!shelf(folder.path(), 4).await.of("acme").disabled("a"));
        let names = first.all();
        assert_eq!(names.len(), 1);
        assert_eq!((names[0].owner.as_str(), names[0].name.as_str()), ("acme", "a"));
        assert_eq!(names[0].versions.len(), 2);
    }

    #[test]
    fn versions_written_before_names_could_be_disabled_are_read() {
        let before = r#"[{"sha256":"one","bytes":3,"uploaded_at":1,"blob":"b","facts":7}]"#;
        let versions: Versions<u32> = serde_json::from_str(before).unwrap();
        assert!(!versions.disabled);
        assert_eq!(versions.versions[0].facts, 7);
        assert_eq!(serde_json::to_string(&versions).unwrap(), before);
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
