//! Folders and objects of a state. All functions return [`StateError::Store`] if the store fails.

use crate::error::StateError;
use bytes::Bytes;
use frostline_objects::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A folder of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) name: &'static str,
    /// Number of keys per listing request.
    pub(crate) page: usize,
}

impl Folder {
    /// Creates a folder that is listed in pages of 1,000 keys, the maximum of S3.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, page: 1000 }
    }

    /// Returns the part of a key after the folder, or `None` if the key is not in the folder.
    pub(crate) fn inside(self, key: &str) -> Option<&str> {
        key.strip_prefix(self.name)?.strip_prefix('/')
    }

    /// Lists the objects that `parse` accepts in the order of their keys, until the first one for which `wanted` returns
    /// false. If `after` is given, only greater keys are considered.
    pub(crate) async fn list<T>(
        self,
        store: &Store,
        after: Option<String>,
        parse: impl Fn(&str) -> Option<T>,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StateError> {
        let mut found = Vec::new();
        // The character after '/'.
        let end = format!("{}0", self.name);
        let mut next = Some(after.unwrap_or_else(|| self.name.to_owned()));
        while let Some(from) = next {
            let page = store.list(Some(&from), self.page).await?;
            for object in &page.objects {
                let key = object.sample.key.as_str();
                if key >= end.as_str() {
                    return Ok(found);
                }
                match parse(key) {
                    Some(item) if wanted(&item) => found.push(item),
                    Some(_) => return Ok(found),
                    None => {}
                }
            }
            next = page.next;
        }
        Ok(found)
    }
}

/// Reads a JSON object. Returns [`StateError::Record`] if the content is invalid.
pub(crate) async fn read_json<T: DeserializeOwned>(store: &Store, key: &str) -> Result<T, StateError> {
    let bytes = store.read(key).await?;
    serde_json::from_slice(&bytes).map_err(|error| StateError::broken(key, error))
}

/// Serializes the content of the object `key`.
pub(crate) fn to_json(key: &str, content: &impl Serialize) -> Result<Bytes, StateError> {
    let json = serde_json::to_vec(content).map_err(|error| StateError::broken(key, error))?;
    Ok(Bytes::from(json))
}

/// Creates an object, unless it exists. The key determines the content, or an earlier attempt succeeded but its response
/// was lost.
pub(crate) async fn create(store: &Store, key: &str, content: Bytes) -> Result<(), StateError> {
    match store.put_new(key, content).await {
        Err(error) if !error.is_already_there() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Copies an object that `to` does not have. Returns false if a host has removed it in the meantime.
pub(crate) async fn copy(from: &Store, to: &Store, key: &str) -> Result<bool, StateError> {
    match from.read(key).await {
        Err(error) if error.is_not_found() => Ok(false),
        bytes => {
            to.put_same(key, bytes?).await?;
            Ok(true)
        }
    }
}

/// Removes an object, which may no longer exist.
pub(crate) async fn remove(store: &Store, key: &str) -> Result<(), StateError> {
    match store.delete(key).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Waits for `operation`, or returns [`StateError::Late`] if it does not end within `limit`.
pub(crate) async fn within<T, E: From<StateError>>(
    limit: Duration,
    operation: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let ended = tokio::time::timeout(limit, operation).await;
    ended.unwrap_or_else(|_| Err(StateError::Late { after: limit }.into()))
}
