//! Snapshots of all documents, which avoid reading the complete log.
//!
//! The documents after the change with a given number are stored in several parts. `snapshots/<20-digit
//! number>/parts.json` lists the parts and is created last.

use crate::error::StateError;
use crate::folder::{self, Folder, create, read_json, to_json};
use crate::log::Position;
use crate::record::unique_id;
use bytes::Bytes;
use frostline_objects::Store;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

/// Two snapshots of 100,000 documents consist of about 60 objects.
const FOLDER: Folder = Folder {
    name: "snapshots",
    page: 100,
};

/// Size of a part in bytes. This is enough for 10,000 tenants or 1,000 models, and can be transferred within
/// a second at 32 Mbit/s.
const PART: usize = 4 << 20;

/// Number of parts read or written concurrently, which limits the memory used in addition to the documents.
const AT_ONCE: usize = 8;

/// Number of snapshots to keep. Hosts might still be reading the previous one.
const KEPT: usize = 2;

/// A serialized document.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Document {
    /// Format of the content, or 0 if written by a version without formats.
    #[serde(default)]
    pub(crate) format: u32,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) content: Box<RawValue>,
}

/// Contents of `parts.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Parts {
    /// Mark of the last change in the snapshot.
    mark: String,
    /// Keys of the parts.
    parts: Vec<String>,
}

/// Returns the number of the newest complete snapshot; if `after` is given, only newer ones are considered.
pub(crate) async fn newest(store: &Store, after: Option<u64>) -> Result<Option<u64>, StateError> {
    let keys = keys(store, after).await?;
    Ok(keys.iter().filter_map(|key| complete(key)).max())
}

/// Checks that the snapshot 0 has this mark, so that the log still starts at the same position.
pub(crate) async fn is_first(store: &Store, mark: &str) -> Result<bool, StateError> {
    match read_parts(store, 0).await {
        Ok(first) => Ok(first.mark == mark),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the highest number of all snapshots, complete or not, or 0 if none exists.
pub(crate) async fn last(store: &Store) -> Result<u64, StateError> {
    let keys = keys(store, None).await?;
    Ok(keys.iter().filter_map(|key| number(key)).max().unwrap_or(0))
}

/// Reads the documents in a snapshot and the position in the log.
pub(crate) async fn read(store: &Store, number: u64) -> Result<(Position, Vec<Document>), StateError> {
    let Parts { mark, parts } = read_parts(store, number).await?;
    let read = stream::iter(parts).map(|key| async move { read_json::<Vec<Document>>(store, &key).await });
    let documents: Vec<_> = read.buffered(AT_ONCE).try_collect().await?;
    Ok((
        Position { number, mark },
        documents.into_iter().flatten().collect(),
    ))
}

async fn read_parts(store: &Store, number: u64) -> Result<Parts, StateError> {
    read_json(store, &parts_key(number)).await
}

/// Writes a snapshot, unless another host has already written it.
#[expect(clippy::disallowed_methods, reason = "internal work, bounded by the host")]
pub(crate) async fn write(
    store: &Store,
    position: &Position,
    documents: Vec<Document>,
) -> Result<(), StateError> {
    let folder = path(position.number);
    let mark = unique_id()?;
    let parts = spawn_blocking(move || divide(&documents)).await?;
    let parts = parts.map_err(|error| StateError::broken(&folder, error))?;
    let folder = folder.as_str();
    let mark = mark.as_str();
    let written = stream::iter(parts.into_iter().enumerate()).map(|(index, bytes)| async move {
        let key = format!("{folder}/{mark}-{index:05}.json");
        store.put_new(&key, bytes).await?;
        Ok::<_, StateError>(key)
    });
    let parts = written.buffered(AT_ONCE).try_collect().await?;
    let parts = Parts {
        mark: position.mark.clone(),
        parts,
    };
    let key = parts_key(position.number);
    create(store, &key, to_json(&key, &parts)?).await
}

/// Serializes documents into parts.
fn divide(documents: &[Document]) -> Result<Vec<Bytes>, serde_json::Error> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut bytes = 0;
    for (index, document) in documents.iter().enumerate() {
        bytes += document.content.get().len();
        if bytes >= PART || index + 1 == documents.len() {
            let part = documents.get(begin..=index).unwrap_or_default();
            parts.push(Bytes::from(serde_json::to_vec(part)?));
            (begin, bytes) = (index + 1, 0);
        }
    }
    Ok(parts)
}

/// Removes outdated snapshots, complete or not.
pub(crate) async fn sweep(store: &Store) -> Result<(), StateError> {
    let keys = keys(store, None).await?;
    let whole = keys.iter().filter_map(|key| complete(key));
    match whole.rev().nth(KEPT - 1) {
        Some(oldest) => remove_before(store, oldest).await,
        None => Ok(()),
    }
}

/// Removes all snapshots with a number less than `before`.
pub(crate) async fn remove_before(store: &Store, before: u64) -> Result<(), StateError> {
    for key in keys(store, None).await? {
        if number(&key).is_some_and(|number| number < before) {
            folder::remove(store, &key).await?;
        }
    }
    Ok(())
}

/// Lists all keys of snapshots newer than `after` in ascending order.
async fn keys(store: &Store, after: Option<u64>) -> Result<Vec<String>, StateError> {
    let after = after.map(parts_key);
    let keys = FOLDER.list(store, after, |key| number(key).map(|_| key.to_owned()), |_| true);
    keys.await
}

fn path(number: u64) -> String {
    format!("{}/{number:020}", FOLDER.name)
}

/// The key sorts after the keys of the parts, which start with a hexadecimal digit.
fn parts_key(number: u64) -> String {
    format!("{}/parts.json", path(number))
}

fn number(key: &str) -> Option<u64> {
    let (digits, _) = FOLDER.inside(key)?.split_once('/')?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

/// Returns the number of a snapshot if `key` is the key that is created last.
fn complete(key: &str) -> Option<u64> {
    number(key).filter(|number| parts_key(*number) == key)
}
