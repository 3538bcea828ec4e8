//! Getting objects out of a store: so many at once, and asked for again where an answer stalls.

use crate::ObjectError;
use crate::hedge::{Hedge, Pulse};
use crate::kind::Kind;
use crate::room::{Room, lent};
use crate::root::Root;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Reads of one store at once. A store answers in some 30 ms; 64 keep 2,000 small objects a second coming, more than a host
/// decodes, and stay far below the number of files a process may hold open.
const READS_AT_ONCE: usize = 64;

/// What to get of an object.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
    /// What errors speak of it as.
    pub(crate) root: &'a Root,
    /// What errors speak of: the object's key, or that of a sample in it.
    pub(crate) key: &'a str,
    pub(crate) location: Path,
    /// All of it if there is none.
    pub(crate) range: Option<Range<u64>>,
    pub(crate) etag: Option<String>,
    /// The most bytes that are taken.
    pub(crate) limit: u64,
    /// Where they go.
    pub(crate) room: Room,
}

/// Gets objects, whole or in parts.
#[derive(Debug)]
pub(crate) struct Fetcher {
    store: Arc<dyn ObjectStore>,
    permits: Semaphore,
    /// Where answers can stall.
    hedge: Option<Hedge>,
}

impl Fetcher {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, kind: Kind) -> Self {
        Self {
            store,
            permits: Semaphore::new(READS_AT_ONCE),
            hedge: kind.is_remote().then(Hedge::new),
        }
    }

    /// One of the reads at once; over a network a second request goes out for one that stalls, within the same permit.
    pub(crate) async fn get(&self, wanted: &Wanted<'_>) -> Result<Bytes, ObjectError> {
        let _permit = self.permits.acquire().await;
        match &self.hedge {
            None => self.get_once(wanted, &Pulse::default()).await,
            Some(hedge) => {
                let ask = |pulse: Arc<Pulse>| async move { self.get_once(wanted, &pulse).await };
                hedge.read(ask, ObjectError::is_about_the_object).await
            }
        }
    }

    async fn get_once(&self, wanted: &Wanted<'_>, pulse: &Pulse) -> Result<Bytes, ObjectError> {
        let (key, root) = (wanted.key, wanted.root);
        let options = GetOptions {
            if_match: wanted.etag.clone(),
            range: wanted.range.clone().map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&wanted.location, options).await;
        let found = found.map_err(|error| root.explain(&error, key))?;
        pulse.beat();
        if let (Some(asked), Some(is)) = (&wanted.etag, &found.meta.e_tag) {
            // Some stores pass over conditions they do not know.
            if *asked != root.kind.etag(is) {
                return Err(root.changed(key));
            }
        }
        let size = found.range.end.saturating_sub(found.range.start);
        if size > wanted.limit {
            return Err(too_large(key, size, wanted.limit));
        }
        let guard = wanted.room.enter(key, size, pulse).await?;
        let bytes = match found.payload {
            GetResultPayload::Stream(stream) => collect(wanted, stream, size, pulse).await,
            GetResultPayload::File(..) => found.bytes().await.map_err(|error| root.explain(&error, key)),
        };
        Ok(lent(bytes?, guard))
    }
}

/// The body of an answer that said it would have `size` bytes, and not one more or less.
async fn collect(
    wanted: &Wanted<'_>,
    mut stream: BoxStream<'static, object_store::Result<Bytes>>,
    size: u64,
    pulse: &Pulse,
) -> Result<Bytes, ObjectError> {
    let mut body = BytesMut::new();
    while let Some(part) = stream.next().await {
        let part = part.map_err(|error| wanted.root.explain(&error, wanted.key))?;
        pulse.beat();
        let length = (body.len() + part.len()) as u64;
        if length > size {
            return Err(wanted.cut_off(length, size));
        }
        if length == size && body.is_empty() {
            return Ok(part);
        }
        if body.is_empty() {
            body.reserve(usize::try_from(size).unwrap_or_default());
        }
        body.extend_from_slice(&part);
    }
    if body.len() as u64 == size {
        Ok(body.freeze())
    } else {
        Err(wanted.cut_off(body.len() as u64, size))
    }
}

impl Wanted<'_> {
    fn cut_off(&self, length: u64, size: u64) -> ObjectError {
        let reason = format!("it sent {length} bytes of an object of {size}");
        self.root.failed(self.key, reason)
    }
}

pub(crate) fn too_large(key: &str, size: u64, limit: u64) -> ObjectError {
    ObjectError::TooLarge {
        key: key.to_owned(),
        size,
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Credentials;
    use object_store::memory::InMemory;
    use object_store::{ObjectStoreExt, PutPayload};

    #[tokio::test]
    async fn a_part_of_a_version_is_got_within_a_limit() {
        let store = Arc::new(InMemory::new());
        let put = store
            .put(&"a".into(), PutPayload::from_static(b"photo"))
            .await
            .unwrap();
        let root = Root {
            shown: "memory://".to_owned(),
            kind: Kind::Memory,
            credentials: Credentials::Given,
            on_fault: Default::default(),
        };
        let fetcher = Fetcher::new(store, Kind::Memory);
        let wanted = Wanted {
            root: &root,
            key: "a",
            location: "a".into(),
            range: Some(1..3),
            etag: put.e_tag,
            limit: 2,
            room: Room::default(),
        };
        assert_eq!(fetcher.get(&wanted).await.unwrap(), "ho");
        assert_eq!(fetcher.permits.available_permits(), READS_AT_ONCE, "given back");
        let whole = Wanted {
            range: None,
            ..wanted.clone()
        };
        assert!(matches!(
            fetcher.get(&whole).await,
            Err(ObjectError::TooLarge { size: 5, .. })
        ));
        let etag = Some("another".to_owned());
        let other = Wanted { etag, ..wanted };
        assert!(matches!(
            fetcher.get(&other).await,
            Err(ObjectError::Changed { .. })
        ));
    }
}
