//! Named documents that several hosts share. A document is changed by adding what it is from then on to the log: of two hosts that do so
//! at once one sees that it was second and does its change again on top of the other's, so no update is lost, and a kill at any
//! instant leaves the old document or the new one.

use super::error::StateError;
use super::journal::{Dump, Journal, Kind};
use super::record::FORMAT;
use super::snapshot::Document;
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tries to add a change while others add theirs. Each try fails only because another one succeeded.
const TRIES: usize = 256;

/// This host's copy of all documents of one kind.
pub(super) struct Replica<T> {
    kind: &'static str,
    documents: RwLock<BTreeMap<String, Arc<T>>>,
}

impl<T> Replica<T> {
    pub(super) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            documents: RwLock::default(),
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Kind for Replica<T> {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn count(&self) -> usize {
        self.documents.read().len()
    }

    fn set(&self, name: &str, content: Option<&RawValue>) -> Result<(), serde_json::Error> {
        let content = content
            .map(|content| serde_json::from_str(content.get()))
            .transpose()?;
        let mut documents = self.documents.write();
        match content {
            Some(content) => documents.insert(name.to_owned(), Arc::new(content)),
            None => documents.remove(name),
        };
        Ok(())
    }

    fn replace(&self, documents: Vec<Document>) -> Vec<Document> {
        let (mut all, mut unread) = (BTreeMap::new(), Vec::new());
        for document in documents {
            match serde_json::from_str(document.content.get()) {
                Ok(content) => _ = all.insert(document.name, Arc::new(content)),
                Err(_) => unread.push(document),
            }
        }
        *self.documents.write() = all;
        unread
    }

    fn dump(&self) -> Dump {
        let (kind, documents) = (self.kind, self.documents.read().clone());
        let document = move |(name, content): (String, Arc<T>)| {
            Ok(Document {
                format: FORMAT,
                kind: kind.to_owned(),
                name,
                content: to_raw_value(&content)?,
            })
        };
        Box::new(move || documents.into_iter().map(document).collect())
    }
}

/// All documents of one kind.
pub(crate) struct Documents<T> {
    replica: Arc<Replica<T>>,
    journal: Arc<Journal>,
}

impl<T: Serialize + DeserializeOwned + PartialEq + Send + Sync + 'static> Documents<T> {
    /// What `replica`, which is among the kinds of `journal`, knows.
    pub(super) fn new(replica: Arc<Replica<T>>, journal: Arc<Journal>) -> Self {
        Self { replica, journal }
    }

    /// The document, unless there is none.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.replica.documents.read().get(name).cloned()
    }

    /// All documents whose names start with `prefix`.
    pub(crate) fn list(&self, prefix: &str) -> Vec<(String, Arc<T>)> {
        self.replica
            .documents
            .read()
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, document)| (name.clone(), Arc::clone(document)))
            .collect()
    }

    /// What `pick` finds in any of them.
    pub(super) fn pick<R>(&self, pick: impl FnMut(&Arc<T>) -> Option<R>) -> Vec<R> {
        self.replica.documents.read().values().filter_map(pick).collect()
    }

    /// Reads what other hosts changed before this was called.
    pub(super) async fn catch_up(&self) -> Result<(), StateError> {
        self.journal.catch_up().await
    }

    /// Changes a document by what it is now on all hosts; `change` is called again when another host was first, and returns no content to
    /// delete it. What it refuses is returned and changes nothing; what it leaves equal is not written.
    ///
    /// # Errors
    /// [`StateError::Unsure`] when it is not known whether the change was made; any other error says that it was not.
    pub(crate) async fn update<E: From<StateError>>(
        &self,
        name: &str,
        mut change: impl FnMut(Option<&T>) -> Result<Option<T>, E>,
    ) -> Result<Option<Arc<T>>, E> {
        self.journal.catch_up().await?;
        self.journal.check_readable(self.replica.kind, name)?;
        // Whoever removes what is not there keeps nobody from adding.
        if self.get(name).is_none() && change(None)?.is_none() {
            return Ok(None);
        }
        let _adding = self.journal.adding(self.replica.kind, name).await?;
        for _ in 0..TRIES {
            let before = || {
                (
                    self.get(name),
                    self.journal.check_readable(self.replica.kind, name),
                )
            };
            let (position, (before, readable)) = self.journal.at(before).await;
            readable?;
            let content = change(before.as_deref())?.map(Arc::new);
            if before == content {
                return Ok(before);
            }
            let raw = content.as_ref().map(to_raw_value).transpose();
            let raw = raw.map_err(|error| StateError::broken(name, error))?;
            if self.journal.add(&position, self.replica.kind, name, raw).await? {
                return Ok(content);
            }
        }
        Err(StateError::Contended {
            kind: self.replica.kind,
            name: name.to_owned(),
        }
        .into())
    }
}
