//! The list of changes by which hosts on one state hear of each other: `changes/<20-digit number>.json`, numbered without a gap. To look for
//! news is to ask for one object that is not there, the cheapest thing a store can be asked.

use super::StateError;
use bytes::Bytes;
use frostline_objects::Store;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder they lie in.
const FOLDER: &str = "changes";

/// Changes that are kept. A host that is further behind finds no next one, and learns what it missed when it next reads everything.
const KEPT: u64 = 1000;

/// Changes heard of at once; the others follow with the next look.
const AT_ONCE: usize = 100;

/// Keys asked for at a time.
const PAGE: usize = 1000;

/// Tries to write a change while others write theirs. Each try fails only because another one succeeded.
const TRIES: usize = 256;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// The kind of document.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
}

/// The list, and how far this host has read and written it.
pub(crate) struct Changes {
    store: Arc<Store>,
    read: AtomicU64,
    written: AtomicU64,
}

impl Changes {
    /// The list from its present end on.
    pub(crate) async fn open(store: Arc<Store>) -> Result<Self, StateError> {
        let changes = Self {
            store,
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        };
        changes.skip().await?;
        Ok(changes)
    }

    /// Goes on from the list's present end. Whoever reads everything afterwards has missed nothing.
    pub(crate) async fn skip(&self) -> Result<(), StateError> {
        let newest = self.newest().await?;
        self.read.fetch_max(newest, Ordering::Relaxed);
        self.written.fetch_max(newest, Ordering::Relaxed);
        Ok(())
    }

    /// Tells all hosts that a document changed.
    pub(crate) async fn tell(&self, kind: &str, name: &str) -> Result<(), StateError> {
        let change = Change {
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        let json = serde_json::to_vec(&change).map_err(|error| broken(FOLDER, &error))?;
        let first = self.written.load(Ordering::Relaxed) + 1;
        for number in (first..).take(TRIES) {
            let created = self.store.put_new(&key(number), Bytes::from(json.clone())).await;
            match created {
                Ok(()) => {
                    self.written.fetch_max(number, Ordering::Relaxed);
                    self.sweep(number).await;
                    return Ok(());
                }
                Err(error) if error.is_already_there() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(StateError::Contended {
            kind: FOLDER,
            name: name.to_owned(),
        })
    }

    /// What changed since the last call, oldest first; each change is told of once.
    pub(crate) async fn news(&self) -> Result<Vec<Change>, StateError> {
        let mut changes = Vec::new();
        while changes.len() < AT_ONCE {
            let next = self.read.load(Ordering::Relaxed) + 1;
            let key = key(next);
            let bytes = match self.store.read(&key, None).await {
                Ok(bytes) => bytes,
                Err(error) if error.is_not_found() => break,
                Err(error) => return Err(error.into()),
            };
            changes.push(serde_json::from_slice(&bytes).map_err(|error| broken(&key, &error))?);
            self.read.fetch_max(next, Ordering::Relaxed);
            self.written.fetch_max(next, Ordering::Relaxed);
        }
        Ok(changes)
    }

    /// The largest number in the list, 0 for none.
    async fn newest(&self) -> Result<u64, StateError> {
        let mut newest = self.read.load(Ordering::Relaxed);
        let mut after = Some(key(newest));
        while let Some(last) = after {
            let page = self.store.list(Some(&last), PAGE).await?;
            let numbers = page.objects.iter().map_while(|object| number(&object.key));
            let count = numbers.inspect(|number| newest = newest.max(*number)).count();
            after = page.next.filter(|_| count == page.objects.len());
        }
        Ok(newest)
    }

    /// Removes a change that all hosts have heard of. A leftover costs space, not correctness, so a failure is only logged.
    async fn sweep(&self, newest: u64) {
        let Some(number) = newest.checked_sub(KEPT).filter(|number| *number > 0) else {
            return;
        };
        if let Err(error) = self.store.delete(&key(number)).await
            && !error.is_not_found()
        {
            tracing::warn!(number, %error, "an old change could not be removed");
        }
    }
}

fn key(number: u64) -> String {
    format!("{FOLDER}/{number:020}.json")
}

fn number(key: &str) -> Option<u64> {
    let digits = key
        .strip_prefix(FOLDER)?
        .strip_prefix('/')?
        .strip_suffix(".json")?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

fn broken(key: &str, error: &serde_json::Error) -> StateError {
    StateError::Record {
        key: key.to_owned(),
        detail: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn changes(folder: &std::path::Path) -> Changes {
        let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
        Changes::open(store).await.unwrap()
    }

    async fn heard(host: &Changes) -> Vec<String> {
        let changes = host.news().await.unwrap();
        changes.into_iter().map(|change| change.name).collect()
    }

    #[tokio::test]
    async fn all_hosts_hear_of_every_change_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (changes(folder.path()).await, changes(folder.path()).await);
        one.tell("things", "a").await.unwrap();
        two.tell("things", "b").await.unwrap();
        one.tell("things", "c").await.unwrap();
        for host in [&one, &two] {
            assert_eq!(heard(host).await, ["a", "b", "c"]);
            assert!(heard(host).await.is_empty());
        }
        let late = changes(folder.path()).await;
        assert!(heard(&late).await.is_empty());
        late.tell("things", "d").await.unwrap();
        assert_eq!(heard(&one).await, ["d"]);
    }

    #[tokio::test]
    async fn who_was_away_for_too_long_goes_on_from_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (changes(folder.path()).await, changes(folder.path()).await);
        for name in ["a", "b"] {
            one.tell("things", name).await.unwrap();
        }
        std::fs::remove_file(folder.path().join(key(1))).unwrap();
        assert!(heard(&two).await.is_empty());
        two.skip().await.unwrap();
        one.tell("things", "c").await.unwrap();
        assert_eq!(heard(&two).await, ["c"]);
    }
}
