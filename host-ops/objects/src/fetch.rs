//! Fetches objects from a store with bounded concurrency and hedged requests.

use crate::ObjectError;
use crate::access::{Access, Passage};
use crate::hedge::{Hedge, Pulse};
use crate::kind::Kind;
use crate::local;
use crate::room::{Room, lent};
use crate::root::Root;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, GetRange, GetResultPayload, ObjectStore};
use std::ops::Range;
use std::sync::Arc;

/// Request for the content of an object.
#[derive(Debug, Clone)]
pub(crate) struct ReadRequest<'a> {
    /// Root, for errors.
    pub(crate) root: &'a Root,
    /// Key of the object or sample, for errors.
    pub(crate) key: &'a str,
    pub(crate) location: Path,
    /// Byte range; the entire object if `None`.
    pub(crate) range: Option<Range<u64>>,
    pub(crate) etag: Option<String>,
    /// Maximum size of the content in bytes.
    pub(crate) limit: u64,
    /// Memory to read into. It also counts the bytes read.
    pub(crate) room: Room,
    /// True if the caller reserved the memory already.
    pub(crate) covered: bool,
    pub(crate) access: &'a Access,
}

/// Fetches objects or byte ranges.
#[derive(Debug)]
pub(crate) struct Fetcher {
    store: Arc<dyn ObjectStore>,
    /// Hedging of remote requests.
    hedge: Option<Hedge>,
}

impl Fetcher {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, kind: Kind) -> Self {
        Self {
            store,
            hedge: kind.is_remote().then(Hedge::new),
        }
    }

    /// Fetches the content within the concurrency limit. Stalled network requests are hedged, with the same
    /// permits.
    pub(crate) async fn get(&self, wanted: &ReadRequest<'_>) -> Result<Bytes, ObjectError> {
        let passage = &wanted.access.enter().await;
        match &self.hedge {
            None => self.get_once(wanted, passage, &Pulse::default()).await,
            Some(hedge) => {
                hedge
                    .read(
                        |pulse| async move { self.get_once(wanted, passage, &pulse).await },
                        ObjectError::is_final,
                    )
                    .await
            }
        }
    }

    async fn get_once(
        &self,
        wanted: &ReadRequest<'_>,
        passage: &Arc<Passage>,
        pulse: &Pulse,
    ) -> Result<Bytes, ObjectError> {
        let key = wanted.key;
        let root = wanted.root;
        let options = GetOptions {
            if_match: wanted.etag.clone(),
            range: wanted.range.clone().map(GetRange::Bounded),
            ..wanted.access.options()
        };
        let found = self.store.get_opts(&wanted.location, options).await;
        let found = found.map_err(|error| root.explain(&error, key))?;
        pulse.beat();
        // Some stores ignore unsupported conditions.
        root.check_version(key, wanted.etag.as_deref(), &found.meta)?;
        let size = found.range.end.saturating_sub(found.range.start);
        if size > wanted.limit {
            return Err(too_large(key, size, wanted.limit));
        }
        let encoding = compression(&found.attributes);
        let begins = found.range.start == 0;
        let guard = match wanted.covered {
            true => None,
            false => passage.wait_outside(wanted.room.enter(key, size), pulse).await?,
        };
        let bytes = match found.payload {
            GetResultPayload::Stream(stream) => lent(collect(wanted, stream, size, pulse).await?, guard),
            GetResultPayload::File(file, _) => {
                wanted.room.count_read(size);
                let range = found.range;
                let read = passage.run(move |stop| Ok(lent(local::read(file, range, stop)?, guard)));
                let read = read.await.unwrap_or_else(|unfinished| Err(unfinished.into()));
                read.map_err(|error| root.explain(&local::explained(&wanted.location, error), key))?
            }
        };
        match encoding {
            // Some tools set the header for files that are not compressed.
            Some(encoding) if begins && is_compressed(&encoding, &bytes) => Err(ObjectError::Compressed {
                key: key.to_owned(),
                root: root.shown.clone(),
                encoding,
            }),
            _ => Ok(bytes),
        }
    }
}

/// Returns the name of the compression in the object's `Content-Encoding`, if any. Other values, such as
/// `aws-chunked`, do not change the bytes.
fn compression(attributes: &Attributes) -> Option<String> {
    let encoding = attributes.get(&Attribute::ContentEncoding)?.to_ascii_lowercase();
    let mut names = encoding.split(',').map(str::trim);
    let name =
        names.find(|name| matches!(*name, "gzip" | "x-gzip" | "deflate" | "br" | "zstd" | "compress"))?;
    Some(name.to_owned())
}

/// Returns true if the beginning of an object can be in this encoding.
fn is_compressed(encoding: &str, bytes: &[u8]) -> bool {
    !encoding.ends_with("gzip") || bytes.starts_with(&[0x1f, 0x8b])
}

/// Collects a body of exactly `size` bytes.
async fn collect(
    wanted: &ReadRequest<'_>,
    mut stream: BoxStream<'static, object_store::Result<Bytes>>,
    size: u64,
    pulse: &Pulse,
) -> Result<Bytes, ObjectError> {
    let mut body = BytesMut::new();
    while let Some(part) = stream.next().await {
        let part = part.map_err(|error| wanted.root.explain(&error, wanted.key))?;
        pulse.beat();
        wanted.room.count_read(part.len() as u64);
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

impl ReadRequest<'_> {
    fn cut_off(&self, length: u64, size: u64) -> ObjectError {
        let reason = format!("it sent {length} bytes instead of {size}");
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
        let wanted = ReadRequest {
            root: &root,
            key: "a",
            location: "a".into(),
            range: Some(1..3),
            etag: put.e_tag,
            limit: 2,
            room: Room::default(),
            covered: false,
            access: &Access::new(),
        };
        assert_eq!(fetcher.get(&wanted).await.unwrap(), "ho");
        let whole = ReadRequest {
            range: None,
            ..wanted.clone()
        };
        assert!(matches!(
            fetcher.get(&whole).await,
            Err(ObjectError::TooLarge { size: 5, .. })
        ));
        let etag = Some("another".to_owned());
        let other = ReadRequest { etag, ..wanted };
        assert!(matches!(
            fetcher.get(&other).await,
            Err(ObjectError::Changed { .. })
        ));
    }
}
