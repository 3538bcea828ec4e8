//! Named documents shared by several hosts.
//!
//! A document is changed by appending the new content to the log. If two hosts do so at the same time, one of
//! them fails and applies the change again to the result of the other, so that no update is lost. If a host
//! is killed, either the old or the new document is in place.

use crate::error::StateError;
use crate::journal::{DocumentKind, Dump, Journal};
use crate::record::FORMAT;
use crate::snapshot::Document;
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Attempts to append a change. An attempt only fails if another change was appended.
const TRIES: usize = 256;

/// This host's copy of all documents with the same kind.
pub(crate) struct Replica<T> {
    kind: &'static str,
    documents: RwLock<BTreeMap<String, Arc<T>>>,
}

impl<T> Replica<T> {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            documents: RwLock::default(),
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> DocumentKind for Replica<T> {
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
        let mut all = BTreeMap::new();
        let mut unread = Vec::new();
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
        let kind = self.kind;
        let documents = self.documents.read().clone();
        Box::new(move || {
            documents
                .into_iter()
                .map(move |(name, content)| {
                    Ok(Document {
                        format: FORMAT,
                        kind: kind.to_owned(),
                        name,
                        content: to_raw_value(&content)?,
                    })
                })
                .collect()
        })
    }
}

/// All documents with the same kind, by name. `T` is their content.
pub struct Documents<T> {
    replica: Arc<Replica<T>>,
    pub(crate) journal: Arc<Journal>,
}

impl<T: Serialize + DeserializeOwned + PartialEq + Send + Sync + 'static> Documents<T> {
    /// Creates the documents of `replica`, which must be registered with `journal`.
    pub(crate) fn new(replica: Arc<Replica<T>>, journal: Arc<Journal>) -> Self {
        Self { replica, journal }
    }

    /// Returns a document, or `None` if it does not exist.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.replica.documents.read().get(name).cloned()
    }

    /// Returns all documents whose names start with `prefix`.
    pub fn list(&self, prefix: &str) -> Vec<(String, Arc<T>)> {
        self.replica
            .documents
            .read()
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, document)| (name.clone(), Arc::clone(document)))
            .collect()
    }

    /// Returns all results of `pick` that are not `None`.
    pub(crate) fn pick<R>(&self, pick: impl FnMut(&Arc<T>) -> Option<R>) -> Vec<R> {
        self.replica.documents.read().values().filter_map(pick).collect()
    }

    /// Updates a document.
    ///
    /// `change` receives the current content and returns the new content, or `None` to delete the document.
    /// It is called again if another host changed the state in the meantime. If it returns an error, nothing
    /// is changed. If the content stays equal, nothing is written.
    ///
    /// # Errors
    /// Returns the error of `change`, or [`StateError::OutcomeUnknown`] if the change may have been applied.
    /// After any other error the document is unchanged.
    pub async fn update<E: From<StateError>>(
        &self,
        name: &str,
        mut change: impl FnMut(Option<&T>) -> Result<Option<T>, E>,
    ) -> Result<Option<Arc<T>>, E> {
        self.journal.catch_up().await?;
        self.journal.check_readable(self.replica.kind, name)?;
        // Deleting a missing document does not need the lock for appending changes.
        if self.get(name).is_none() && change(None)?.is_none() {
            return Ok(None);
        }
        let _adding = self.journal.adding(self.replica.kind, name).await?;
        for _ in 0..TRIES {
            let read = self.journal.read_at_position(|| {
                let before = self.get(name);
                (before, self.journal.check_readable(self.replica.kind, name))
            });
            let (position, (before, readable)) = read.await;
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
