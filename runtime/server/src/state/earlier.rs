//! State as versions before the log kept it, `<kind>/<name>/<20-digit version>.json`: read once, into the first snapshot.

use super::error::StateError;
use super::snapshot::Document;
use frostline_objects::Store;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Keys asked for at a time: what S3 gives at once.
const PAGE: usize = 1000;

/// Documents read at once: as many reads as a store takes.
const AT_ONCE: usize = 64;

/// A version; without content the document was deleted.
#[derive(Deserialize)]
struct Record {
    content: Option<Box<RawValue>>,
}

/// All documents of a kind.
pub(super) async fn documents(store: &Store, kind: &str) -> Result<Vec<Document>, StateError> {
    let newest = newest(store, kind).await?;
    let read = stream::iter(newest).map(|(name, key)| async move {
        let bytes = store.read(&key).await?;
        let record: Record =
            serde_json::from_slice(&bytes).map_err(|error| StateError::broken(&key, error))?;
        let document = |content| Document {
            kind: kind.to_owned(),
            name,
            content,
        };
        Ok::<_, StateError>(record.content.map(document))
    });
    let read: Vec<_> = read.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

/// The key of every name's newest version: the last of its keys.
async fn newest(store: &Store, kind: &str) -> Result<BTreeMap<String, String>, StateError> {
    let below = format!("{kind}/");
    let (mut newest, mut after) = (BTreeMap::new(), Some(kind.to_owned()));
    while let Some(from) = after {
        let page = store.list(Some(&from), PAGE).await?;
        let past = page
            .objects
            .last()
            .is_some_and(|object| object.sample.key > below && !object.sample.key.starts_with(&below));
        for key in page.objects.into_iter().map(|object| object.sample.key) {
            if let Some(name) = name(&below, &key) {
                newest.insert(name, key);
            }
        }
        after = page.next.filter(|_| !past);
    }
    Ok(newest)
}

fn name(below: &str, key: &str) -> Option<String> {
    let (name, file) = key.strip_prefix(below)?.rsplit_once('/')?;
    let digits = file.strip_suffix(".json")?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| name.to_owned())
}
