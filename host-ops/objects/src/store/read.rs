//! Reading objects, whole and in parts.

use super::Store;
use crate::ObjectError;
use crate::hedge::Pulse;
use crate::shards::SampleName;
use bytes::{Bytes, BytesMut};
use frostline_tensor::SampleRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStoreExt};
use std::ops::Range;
use std::sync::Arc;

/// The largest object, in bytes, that [`Store::read`] reads: the largest thing read whole is a model (VGG19's 575 MB is the biggest of the
/// usual ones), and an object that grows without end must not take the host's memory. Photos are read with limits of their own.
pub const LARGEST_READ: u64 = 1 << 30;

/// What to get of an object.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    /// What errors speak of: the object's key, or that of a sample in it.
    pub(super) key: &'a str,
    pub(super) location: Path,
    /// All of it if there is none.
    pub(super) range: Option<Range<u64>>,
    pub(super) etag: Option<String>,
    /// The most bytes that are taken.
    pub(super) limit: u64,
}

impl Store {
    /// The whole object, of at most 1 GiB.
    ///
    /// # Errors
    /// As [`Store::read_sample`].
    pub async fn read(&self, key: &str) -> Result<Bytes, ObjectError> {
        self.read_sample(&SampleRef::new(key), LARGEST_READ).await
    }

    /// The version of an object that is meant, whole; one of more than `limit` bytes is not read at all.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], [`ObjectError::Changed`] when the object has another etag now, [`ObjectError::TooLarge`], and the
    /// store's failures.
    pub async fn read_sample(&self, sample: &SampleRef, limit: u64) -> Result<Bytes, ObjectError> {
        let SampleRef { key, etag } = sample;
        let Some(sample) = SampleName::parse(key) else {
            let wanted = Wanted {
                key,
                location: self.checked(key).await?,
                range: None,
                etag: etag.clone(),
                limit,
            };
            return self.in_time(key, self.get(&wanted)).await;
        };
        let place = self.place(sample, etag.as_deref()).await?;
        let size = place.range.end - place.range.start;
        if size > limit {
            return Err(self.too_large(key, size, limit));
        }
        self.part(key, sample.shard, place.range, place.etag).await
    }

    /// The bytes of `range`, cut off at the object's end.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let size = range.end.saturating_sub(range.start);
        let Some(sample) = SampleName::parse(key) else {
            if size > LARGEST_READ {
                return Err(self.too_large(key, size, LARGEST_READ));
            }
            return self.part(key, key, range, None).await;
        };
        let place = self.place(sample, None).await?;
        let end = place.range.end.min(place.range.start.saturating_add(range.end));
        let start = place.range.start.saturating_add(range.start).min(end);
        if end - start > LARGEST_READ {
            return Err(self.too_large(key, end - start, LARGEST_READ));
        }
        self.part(key, sample.shard, start..end, place.etag).await
    }

    /// The object's size in bytes.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn size(&self, key: &str) -> Result<u64, ObjectError> {
        match SampleName::parse(key) {
            None => Ok(self.head(key).await?.size),
            Some(sample) => {
                let range = self.place(sample, None).await?.range;
                Ok(range.end - range.start)
            }
        }
    }

    /// What the store knows of an object without reading it.
    pub(super) async fn head(&self, key: &str) -> Result<ObjectMeta, ObjectError> {
        let location = self.checked(key).await?;
        let head = async {
            let head = self.store.head(&location).await;
            head.map_err(|error| self.error(&error, key))
        };
        self.in_time(key, head).await
    }

    /// Bytes of `object`, cut off at its end; errors speak of `key`.
    async fn part(
        &self,
        key: &str,
        object: &str,
        range: Range<u64>,
        etag: Option<String>,
    ) -> Result<Bytes, ObjectError> {
        let wanted = Wanted {
            key,
            location: self.checked(object).await?,
            range: Some(range.clone()),
            etag,
            limit: LARGEST_READ,
        };
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.in_time(key, async {
            match self.get(&wanted).await {
                // Stores differ in what they say of a range that starts at or after the end.
                Err(error @ ObjectError::Store { .. }) => match self.store.head(&wanted.location).await {
                    Ok(meta) if range.start >= meta.size => Ok(Bytes::new()),
                    _ => Err(error),
                },
                got => got,
            }
        })
        .await
    }

    /// One of the reads at once; over a network a second request goes out for one that stalls, within the same permit.
    pub(super) async fn get(&self, wanted: &Wanted<'_>) -> Result<Bytes, ObjectError> {
        let _permit = self.reads.acquire().await;
        match &self.hedge {
            None => self.get_once(wanted, &Pulse::default()).await,
            Some(hedge) => {
                let ask = |pulse: Arc<Pulse>| async move { self.get_once(wanted, &pulse).await };
                hedge.read(ask, ObjectError::is_about_the_object).await
            }
        }
    }

    async fn get_once(&self, wanted: &Wanted<'_>, pulse: &Pulse) -> Result<Bytes, ObjectError> {
        let key = wanted.key;
        let options = GetOptions {
            if_match: wanted.etag.clone(),
            range: wanted.range.clone().map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&wanted.location, options).await;
        let found = found.map_err(|error| self.error(&error, key))?;
        pulse.beat();
        if let (Some(asked), Some(is)) = (&wanted.etag, &found.meta.e_tag) {
            // Some stores pass over conditions they do not know.
            if *asked != self.etag(is) {
                return Err(self.changed(key));
            }
        }
        let size = found.range.end.saturating_sub(found.range.start);
        if size > wanted.limit {
            return Err(self.too_large(key, size, wanted.limit));
        }
        match found.payload {
            GetResultPayload::Stream(stream) => self.collect(key, stream, size, pulse).await,
            GetResultPayload::File(..) => found.bytes().await.map_err(|error| self.error(&error, key)),
        }
    }

    /// The body of an answer that said it would have `size` bytes, and not one more or less.
    async fn collect(
        &self,
        key: &str,
        mut stream: BoxStream<'static, object_store::Result<Bytes>>,
        size: u64,
        pulse: &Pulse,
    ) -> Result<Bytes, ObjectError> {
        let mut body = BytesMut::new();
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| self.error(&error, key))?;
            pulse.beat();
            let length = (body.len() + part.len()) as u64;
            if length > size {
                return Err(self.cut_off(key, length, size));
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
            Err(self.cut_off(key, body.len() as u64, size))
        }
    }

    pub(super) fn changed(&self, key: &str) -> ObjectError {
        ObjectError::Changed {
            key: key.to_owned(),
            root: self.root.clone(),
        }
    }

    fn cut_off(&self, key: &str, length: u64, size: u64) -> ObjectError {
        ObjectError::Store {
            key: key.to_owned(),
            root: self.root.clone(),
            reason: format!("it sent {length} bytes of an object of {size}"),
        }
    }

    fn too_large(&self, key: &str, size: u64, limit: u64) -> ObjectError {
        ObjectError::TooLarge {
            key: key.to_owned(),
            size,
            limit,
        }
    }
}
