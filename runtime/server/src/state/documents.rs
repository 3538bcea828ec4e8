//! Named documents that several hosts share: `<kind>/<name>/<20-digit version>.json` in one object store, the newest wins. Versions are
//! only ever created, never replaced, so of two hosts that change a document at once one sees that it was second and does its change
//! again on top of the other's: no update is lost, and a kill at any instant leaves the old version or the new one.
//! Hosts hear of each other's changes by [`Changes`].

use super::StateError;
use super::changes::Changes;
use bytes::Bytes;
use frostline_objects::Store;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Keys asked for at a time: what S3 gives at once.
const PAGE: usize = 1000;

/// Tries to write a version while others change the same document. Each try fails only because another one succeeded.
const TRIES: usize = 32;

/// Versions that are kept beside the newest, for hosts that are just reading one of them.
const KEPT: u64 = 4;

/// A version as it is stored; without content the document was deleted.
#[derive(Debug, Serialize, Deserialize)]
struct Record<T> {
    content: Option<Arc<T>>,
}

/// A version as it is known.
#[derive(Debug)]
struct Version<T> {
    number: u64,
    content: Option<Arc<T>>,
}

impl<T> Clone for Version<T> {
    fn clone(&self) -> Self {
        Self {
            number: self.number,
            content: self.content.clone(),
        }
    }
}

/// All documents of one kind.
pub(crate) struct Documents<T> {
    kind: &'static str,
    store: Arc<Store>,
    changes: Arc<Changes>,
    known: RwLock<BTreeMap<String, Version<T>>>,
}

impl<T: Serialize + DeserializeOwned + Send + Sync> Documents<T> {
    /// Reads what is there.
    pub(crate) async fn open(
        (store, changes, kind): (Arc<Store>, Arc<Changes>, &'static str),
    ) -> Result<Self, StateError> {
        let documents = Self {
            kind,
            store,
            changes,
            known: RwLock::default(),
        };
        documents.reload().await?;
        Ok(documents)
    }

    /// The document, unless there is none or it was deleted.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name)?.content.clone()
    }

    /// All documents whose names start with `prefix`.
    pub(crate) fn list(&self, prefix: &str) -> Vec<(String, Arc<T>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .filter_map(|(name, version)| Some((name.clone(), version.content.clone()?)))
            .collect()
    }

    /// Changes a document by what it is now; `change` is called again when another host was first, and returns no content to delete it.
    /// What it refuses is returned and changes nothing.
    pub(crate) async fn update<E: From<StateError>>(
        &self,
        name: &str,
        mut change: impl FnMut(Option<&T>) -> Result<Option<T>, E>,
    ) -> Result<Option<Arc<T>>, E> {
        for attempt in 0..TRIES {
            if attempt > 0 {
                self.refresh(name).await?;
            }
            let now = self.version(name);
            let number = now.as_ref().map_or(0, |version| version.number) + 1;
            let before = now.and_then(|version| version.content);
            let content = change(before.as_deref())?.map(Arc::new);
            if before.is_none() && content.is_none() {
                return Ok(None);
            }
            let next = Version { number, content };
            if self.create(name, &next).await? {
                self.learn(name, next.clone());
                self.changes.tell(self.kind, name).await?;
                self.sweep(name, number).await;
                return Ok(next.content);
            }
        }
        Err(StateError::Contended {
            kind: self.kind,
            name: name.to_owned(),
        }
        .into())
    }

    /// Reads the newest version of a document, which another host wrote.
    pub(crate) async fn refresh(&self, name: &str) -> Result<(), StateError> {
        let after = format!("{}/{name}", self.kind);
        let numbers = self.numbers(&after).await?;
        let newest = numbers.get(name).copied();
        match newest {
            Some(number) => self.read(name, number).await,
            None => Ok(()),
        }
    }

    /// Reads the newest version of every document.
    pub(crate) async fn reload(&self) -> Result<(), StateError> {
        for (name, number) in self.numbers(self.kind).await? {
            if self.version(&name).is_none_or(|version| version.number < number) {
                self.read(&name, number).await?;
            }
        }
        Ok(())
    }

    /// The newest version's number of every document below `folder`, a kind or a kind and a name.
    async fn numbers(&self, folder: &str) -> Result<BTreeMap<String, u64>, StateError> {
        let below = format!("{folder}/");
        let mut numbers = BTreeMap::new();
        let mut after = Some(folder.to_owned());
        while let Some(last) = after {
            let page = self.store.list(Some(&last), PAGE).await?;
            let past = page
                .objects
                .last()
                .is_some_and(|object| object.key > below && !object.key.starts_with(&below));
            for object in page.objects {
                if let Some((name, number)) = parse_key(self.kind, &object.key)
                    && object.key.starts_with(&below)
                {
                    let newest = numbers.entry(name).or_insert(number);
                    *newest = number.max(*newest);
                }
            }
            after = page.next.filter(|_| !past);
        }
        Ok(numbers)
    }

    async fn read(&self, name: &str, number: u64) -> Result<(), StateError> {
        let key = record_key(self.kind, name, number);
        let bytes = match self.store.read(&key, None).await {
            Ok(bytes) => bytes,
            // Swept since it was listed: a newer one is there, and was told of.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let record: Record<T> = serde_json::from_slice(&bytes).map_err(|error| StateError::Record {
            key,
            detail: error.to_string(),
        })?;
        self.learn(
            name,
            Version {
                number,
                content: record.content,
            },
        );
        Ok(())
    }

    /// Creates a version; `false` when another host was first.
    async fn create(&self, name: &str, version: &Version<T>) -> Result<bool, StateError> {
        let key = record_key(self.kind, name, version.number);
        let record = Record {
            content: version.content.clone(),
        };
        let json = serde_json::to_vec(&record).map_err(|error| StateError::Record {
            key: key.clone(),
            detail: error.to_string(),
        })?;
        match self.store.put_new(&key, Bytes::from(json)).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_already_there() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes a version, unless a newer one is known.
    fn learn(&self, name: &str, version: Version<T>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let newer = known.get(name).is_none_or(|old| old.number < version.number);
        if newer {
            known.insert(name.to_owned(), version);
        }
    }

    fn version(&self, name: &str) -> Option<Version<T>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).cloned()
    }

    /// Removes a version nobody reads any more. A leftover costs space, not correctness, so a failure is only logged.
    async fn sweep(&self, name: &str, newest: u64) {
        let Some(number) = newest.checked_sub(KEPT + 1).filter(|number| *number > 0) else {
            return;
        };
        let key = record_key(self.kind, name, number);
        if let Err(error) = self.store.delete(&key).await
            && !error.is_not_found()
        {
            tracing::warn!(key, %error, "an old version could not be removed");
        }
    }
}

fn record_key(kind: &str, name: &str, number: u64) -> String {
    format!("{kind}/{name}/{number:020}.json")
}

fn parse_key(kind: &str, key: &str) -> Option<(String, u64)> {
    let (name, file) = key.strip_prefix(kind)?.strip_prefix('/')?.rsplit_once('/')?;
    let number = file
        .strip_suffix(".json")
        .filter(|digits| digits.len() == 20)?
        .parse()
        .ok()?;
    Some((name.to_owned(), number))
}

/// Documents of whatever content, as far as a host follows others.
pub(super) trait Followed: Send + Sync {
    /// The kind.
    fn kind(&self) -> &'static str;

    /// Reads the newest version of one.
    fn catch_up<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), StateError>>;

    /// Reads the newest version of all.
    fn catch_up_all(&self) -> BoxFuture<'_, Result<(), StateError>>;
}

impl<T: Serialize + DeserializeOwned + Send + Sync> Followed for Documents<T> {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn catch_up<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), StateError>> {
        self.refresh(name).boxed()
    }

    fn catch_up_all(&self) -> BoxFuture<'_, Result<(), StateError>> {
        self.reload().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;

    async fn documents(folder: &std::path::Path) -> Documents<u32> {
        let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
        let changes = Arc::new(Changes::open(Arc::clone(&store)).await.unwrap());
        Documents::open((store, changes, "things")).await.unwrap()
    }

    async fn set(documents: &Documents<u32>, name: &str, value: u32) {
        let set = |_: Option<&u32>| Ok::<_, StateError>(Some(value));
        documents.update(name, set).await.unwrap();
    }

    #[tokio::test]
    async fn no_update_is_lost_between_two_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = [documents(folder.path()).await, documents(folder.path()).await];
        let add = |index: usize| {
            let host = &hosts[index % 2];
            host.update("sum", |now| {
                Ok::<_, StateError>(Some(now.copied().unwrap_or(0) + 1))
            })
        };
        for sum in join_all((0..20).map(add)).await {
            sum.unwrap();
        }
        for host in &hosts {
            host.refresh("sum").await.unwrap();
            assert_eq!(host.get("sum").as_deref(), Some(&20));
        }
        assert_eq!(documents(folder.path()).await.get("sum").as_deref(), Some(&20));
    }

    #[tokio::test]
    async fn what_is_refused_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let host = documents(folder.path()).await;
        set(&host, "a", 1).await;
        let refuse = |_: Option<&u32>| {
            Err::<Option<u32>, _>(StateError::Contended {
                kind: "things",
                name: "a".to_owned(),
            })
        };
        assert!(host.update("a", refuse).await.is_err());
        assert_eq!(host.get("a").as_deref(), Some(&1));
    }

    #[tokio::test]
    async fn deleted_is_gone_everywhere_and_may_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (documents(folder.path()).await, documents(folder.path()).await);
        set(&one, "acme/a", 1).await;
        two.refresh("acme/a").await.unwrap();
        let forget = |_: Option<&u32>| Ok::<_, StateError>(None);
        assert_eq!(two.update("acme/a", forget).await.unwrap(), None);
        one.refresh("acme/a").await.unwrap();
        assert_eq!(one.get("acme/a"), None);
        assert_eq!(documents(folder.path()).await.get("acme/a"), None);
        set(&one, "acme/a", 2).await;
        two.refresh("acme/a").await.unwrap();
        assert_eq!(two.get("acme/a").as_deref(), Some(&2));
    }

    #[tokio::test]
    async fn names_below_a_prefix_are_listed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let host = documents(folder.path()).await;
        for name in ["acme/a", "acme/b", "acme2/a", "b/acme"] {
            set(&host, name, 1).await;
        }
        let names =
            |prefix: &str| -> Vec<String> { host.list(prefix).into_iter().map(|(name, _)| name).collect() };
        assert_eq!(names("acme/"), ["acme/a", "acme/b"]);
        assert_eq!(names("").len(), 4);
    }

    #[tokio::test]
    async fn few_versions_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let host = documents(folder.path()).await;
        for value in 0..20 {
            set(&host, "a", value).await;
        }
        let kept = std::fs::read_dir(folder.path().join("things/a")).unwrap().count();
        assert_eq!(kept as u64, KEPT + 1);
    }

    #[tokio::test]
    async fn a_record_nobody_can_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        set(&documents(folder.path()).await, "a", 1).await;
        let key = record_key("things", "a", 2);
        std::fs::write(folder.path().join(&key), "{").unwrap();
        let store = Arc::new(Store::open(folder.path().to_str().unwrap()).unwrap());
        let changes = Arc::new(Changes::open(Arc::clone(&store)).await.unwrap());
        let error = Documents::<u32>::open((store, changes, "things"))
            .await
            .map(drop)
            .unwrap_err();
        assert!(error.to_string().contains(&key), "{error}");
    }
}
