//! Reading objects, whole and in parts.

use super::Store;
use crate::fetch::{Wanted, too_large};
use crate::shards::SampleName;
use crate::{Fault, ObjectError};
use bytes::Bytes;
use frostline_tensor::SampleRef;
use object_store::{ObjectMeta, ObjectStoreExt};
use std::ops::Range;

/// The largest object, in bytes, that [`Store::read`] reads: the largest thing read whole is a model (VGG19's 575 MB is the biggest of the
/// usual ones), and an object that grows without end must not take the host's memory. Photos are read with limits of their own.
pub const LARGEST_READ: u64 = 1 << 30;

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
                root: &self.scope.root,
                key,
                location: self.scope.checked(key)?,
                range: None,
                etag: etag.clone(),
                limit,
                room: self.room.clone(),
            };
            let read = || self.scope.root.in_time(key, self.fetcher.get(&wanted));
            return self.judge(read().await, read).await;
        };
        let stretch = self.stretch(sample, etag.as_deref()).await?;
        let size = stretch.range.end - stretch.range.start;
        if size > limit {
            return Err(too_large(key, size, limit));
        }
        self.part(key, sample.shard, stretch.range, stretch.etag).await
    }

    /// The bytes of `range`, cut off at the object's end.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let size = range.end.saturating_sub(range.start);
        let Some(sample) = SampleName::parse(key) else {
            if size > LARGEST_READ {
                return Err(too_large(key, size, LARGEST_READ));
            }
            return self.part(key, key, range, None).await;
        };
        let stretch = self.stretch(sample, None).await?;
        let end = stretch
            .range
            .end
            .min(stretch.range.start.saturating_add(range.end));
        let start = stretch.range.start.saturating_add(range.start).min(end);
        if end - start > LARGEST_READ {
            return Err(too_large(key, end - start, LARGEST_READ));
        }
        self.part(key, sample.shard, start..end, stretch.etag).await
    }

    /// The object's size in bytes.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn size(&self, key: &str) -> Result<u64, ObjectError> {
        match SampleName::parse(key) {
            None => Ok(self.head(key).await?.size),
            Some(sample) => {
                let range = self.stretch(sample, None).await?.range;
                Ok(range.end - range.start)
            }
        }
    }

    /// What the store knows of an object without reading it.
    pub(super) async fn head(&self, key: &str) -> Result<ObjectMeta, ObjectError> {
        let location = self.scope.checked(key)?;
        let head = async {
            let head = self.store.head(&location).await;
            head.map_err(|error| self.scope.root.explain(&error, key))
        };
        self.scope.root.in_time(key, head).await
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
            root: &self.scope.root,
            key,
            location: self.scope.checked(object)?,
            range: Some(range.clone()),
            etag,
            limit: LARGEST_READ,
            room: self.room.clone(),
        };
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let read = || {
            self.scope.root.in_time(key, async {
                match self.fetcher.get(&wanted).await {
                    // Stores differ in what they say of a range that starts at or after the end.
                    Err(error @ (ObjectError::Store { .. } | ObjectError::Unsupported { .. })) => {
                        match self.store.head(&wanted.location).await {
                            Ok(meta) if range.start >= meta.size => Ok(Bytes::new()),
                            _ => Err(error),
                        }
                    }
                    got => got,
                }
            })
        };
        self.judge(read().await, read).await
    }

    /// What a read gave; one that was refused is told from a root all of which is: there the listing is refused as well. Where it is not,
    /// the object is read once more, as the refusal may have ended in between.
    async fn judge<F>(
        &self,
        read: Result<Bytes, ObjectError>,
        again: impl FnOnce() -> F,
    ) -> Result<Bytes, ObjectError>
    where
        F: Future<Output = Result<Bytes, ObjectError>>,
    {
        let mut read = read;
        match &mut read {
            Err(error) if error.fault() != Some(Fault::Denied) => {}
            Err(ObjectError::Denied { everywhere, .. }) => match self.list(None, 1).await {
                Ok(_) => return again().await,
                Err(_) => *everywhere = true,
            },
            _ => {}
        }
        read
    }
}
