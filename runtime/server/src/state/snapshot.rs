//! All documents as the change of one number left them, so that nobody has to read all changes there ever were:
//! `snapshots/<20-digit number>/parts.json` names the objects beside it that hold them, and is created last.

use super::error::StateError;
use super::log::Position;
use crate::unique::unique_id;
use bytes::Bytes;
use frostline_objects::Store;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

/// The folder they lie in.
const FOLDER: &str = "snapshots";

/// Keys asked for at a time: two snapshots of 100,000 documents have some 60.
const PAGE: usize = 100;

/// Bytes of a part: 10,000 tenants or 1,000 models, a second over 32 Mbit/s.
const PART: usize = 4 << 20;

/// Parts read or written at once, which bounds their memory beside what is in them.
const AT_ONCE: usize = 8;

/// Snapshots that stay: the newest, and the one before it for who is just reading it.
const KEPT: usize = 2;

/// A document of whatever kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Document {
    /// The format of the content; builds that knew none wrote none.
    #[serde(default)]
    pub(super) format: u32,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) content: Box<RawValue>,
}

/// What a snapshot consists of.
#[derive(Debug, Serialize, Deserialize)]
struct Parts {
    /// The mark of the change.
    mark: String,
    /// Keys.
    parts: Vec<String>,
}

/// The number of the newest snapshot, of those newer than `after` if that is given.
pub(super) async fn newest(store: &Store, after: Option<u64>) -> Result<Option<u64>, StateError> {
    let keys = keys(store, after).await?;
    Ok(keys.iter().filter_map(|key| complete(key)).max())
}

/// Whether the log still begins with this first snapshot, whose change is in none.
pub(super) async fn is_first(store: &Store, mark: &str) -> Result<bool, StateError> {
    match read_parts(store, 0).await {
        Ok(first) => Ok(first.mark == mark),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The greatest number of all snapshots, whole or not; 0 where there is none.
pub(super) async fn last(store: &Store) -> Result<u64, StateError> {
    let keys = keys(store, None).await?;
    Ok(keys.iter().filter_map(|key| number(key)).max().unwrap_or(0))
}

/// A snapshot's documents, and the change they end with.
pub(super) async fn read(store: &Store, number: u64) -> Result<(Position, Vec<Document>), StateError> {
    let Parts { mark, parts } = read_parts(store, number).await?;
    let read = stream::iter(parts).map(|key| async move {
        let bytes = store.read(&key).await?;
        let documents: Vec<Document> =
            serde_json::from_slice(&bytes).map_err(|error| StateError::broken(&key, error))?;
        Ok::<_, StateError>(documents)
    });
    let documents: Vec<_> = read.buffered(AT_ONCE).try_collect().await?;
    Ok((
        Position { number, mark },
        documents.into_iter().flatten().collect(),
    ))
}

async fn read_parts(store: &Store, number: u64) -> Result<Parts, StateError> {
    let key = parts_key(number);
    let bytes = store.read(&key).await?;
    serde_json::from_slice(&bytes).map_err(|error| StateError::broken(&key, error))
}

/// Writes a snapshot, unless another host has done so.
pub(super) async fn write(
    store: &Store,
    position: &Position,
    documents: Vec<Document>,
) -> Result<(), StateError> {
    let (folder, mark) = (folder(position.number), unique_id()?);
    let parts = spawn_blocking(move || divide(&documents)).await?;
    let parts = parts.map_err(|error| StateError::broken(&folder, error))?;
    let (folder, mark) = (folder.as_str(), mark.as_str());
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
    let json = serde_json::to_vec(&parts).map_err(|error| StateError::broken(&key, error))?;
    match store.put_new(&key, Bytes::from(json)).await {
        // Another host's says the same.
        Err(error) if !error.is_already_there() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Documents as the bytes of parts.
fn divide(documents: &[Document]) -> Result<Vec<Bytes>, serde_json::Error> {
    let (mut parts, mut begin, mut bytes) = (Vec::new(), 0, 0);
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

/// Removes all that belongs to older snapshots, whole or not.
pub(super) async fn sweep(store: &Store) -> Result<(), StateError> {
    let keys = keys(store, None).await?;
    let mut whole: Vec<u64> = keys.iter().filter_map(|key| complete(key)).collect();
    whole.sort_unstable();
    match whole.iter().rev().nth(KEPT - 1) {
        Some(oldest) => remove(store, &keys, *oldest).await,
        None => Ok(()),
    }
}

/// Removes all that belongs to snapshots before that number.
pub(super) async fn remove_before(store: &Store, before: u64) -> Result<(), StateError> {
    remove(store, &keys(store, None).await?, before).await
}

async fn remove(store: &Store, keys: &[String], before: u64) -> Result<(), StateError> {
    let old = |key: &&String| number(key).is_some_and(|number| number < before);
    for key in keys.iter().filter(old) {
        match store.delete(key).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// All keys of snapshots newer than `after`.
async fn keys(store: &Store, after: Option<u64>) -> Result<Vec<String>, StateError> {
    let mut keys = Vec::new();
    let mut after = Some(after.map_or_else(|| FOLDER.to_owned(), parts_key));
    while let Some(from) = after {
        let page = store.list(Some(&from), PAGE).await?;
        let all = page.objects.len();
        let ours = page.objects.into_iter().map(|object| object.sample.key);
        let before = keys.len();
        keys.extend(ours.filter(|key| number(key).is_some()));
        after = page.next.filter(|_| keys.len() - before == all);
    }
    Ok(keys)
}

fn folder(number: u64) -> String {
    format!("{FOLDER}/{number:020}")
}

/// Greater than the keys of the parts, which begin with a hexadecimal digit.
fn parts_key(number: u64) -> String {
    format!("{}/parts.json", folder(number))
}

fn number(key: &str) -> Option<u64> {
    let (digits, _) = key.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

/// The number of a snapshot that is whole, by the key that is created last.
fn complete(key: &str) -> Option<u64> {
    number(key).filter(|number| parts_key(*number) == key)
}
