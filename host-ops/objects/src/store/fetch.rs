//! Fetches objects from a store with bounded concurrency and hedged requests.

use super::Store;
use crate::ObjectError;
use crate::access::Passage;
use crate::hedge::Pulse;
use crate::local;
use crate::room::lent;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, GetRange, GetResultPayload};
use std::ops::Range;
use std::sync::Arc;

/// Request for the content of an object.
#[derive(Debug, Clone)]
pub(super) struct ReadRequest<'a> {
    /// Key of the object or sample, for errors.
    pub(super) key: &'a str,
    pub(super) location: Path,
    /// Byte range; the entire object if `None`.
    pub(super) range: Option<Range<u64>>,
    pub(super) etag: Option<String>,
    /// Maximum size of the content in bytes.
    pub(super) limit: u64,
    /// True if the caller reserved the memory already.
    pub(super) covered: bool,
}

impl Store {
    /// Fetches the content within the concurrency limit. Stalled network requests are hedged, with the same
    /// permits.
    pub(super) async fn get(&self, wanted: &ReadRequest<'_>) -> Result<Bytes, ObjectError> {
        let passage = &self.access.enter().await;
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
        let root = &self.scope.root;
        let options = GetOptions {
            if_match: wanted.etag.clone(),
            range: wanted.range.clone().map(GetRange::Bounded),
            ..self.access.options()
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
            false => passage.wait_outside(self.room.enter(key, size), pulse).await?,
        };
        let bytes = match found.payload {
            GetResultPayload::Stream(stream) => lent(self.collect(key, stream, size, pulse).await?, guard),
            GetResultPayload::File(file, _) => {
                self.room.count_read(size);
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

    /// Collects a body of exactly `size` bytes.
    async fn collect(
        &self,
        key: &str,
        mut stream: BoxStream<'static, object_store::Result<Bytes>>,
        size: u64,
        pulse: &Pulse,
    ) -> Result<Bytes, ObjectError> {
        let root = &self.scope.root;
        let mut body = BytesMut::new();
        let mut length = 0;
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| root.explain(&error, key))?;
            pulse.beat();
            self.room.count_read(part.len() as u64);
            length += part.len() as u64;
            if length > size {
                break;
            }
            if length == size && body.is_empty() {
                return Ok(part);
            }
            if body.is_empty() {
                body.reserve(usize::try_from(size).unwrap_or_default());
            }
            body.extend_from_slice(&part);
        }
        if length != size {
            return Err(root.failed(key, format!("it sent {length} bytes instead of {size}")));
        }
        Ok(body.freeze())
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

pub(super) fn too_large(key: &str, size: u64, limit: u64) -> ObjectError {
    ObjectError::TooLarge {
        key: key.to_owned(),
        size,
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_of_a_version_is_got_within_a_limit() {
        let store = Store::open("memory://").unwrap();
        store.put("a", Bytes::from_static(b"photo")).await.unwrap();
        let listed = store.list(None, 1).await.unwrap().objects.remove(0);
        let wanted = ReadRequest {
            key: "a",
            location: "a".into(),
            range: Some(1..3),
            etag: listed.sample.etag,
            limit: 2,
            covered: false,
        };
        assert!(wanted.etag.is_some());
        assert_eq!(store.get(&wanted).await.unwrap(), "ho");
        let whole = ReadRequest {
            range: None,
            ..wanted.clone()
        };
        assert!(matches!(
            store.get(&whole).await,
            Err(ObjectError::TooLarge { size: 5, .. })
        ));
        let etag = Some("another".to_owned());
        let other = ReadRequest { etag, ..wanted };
        assert!(matches!(
            store.get(&other).await,
            Err(ObjectError::Changed { .. })
        ));
    }
}
