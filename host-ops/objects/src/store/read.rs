//! Reads objects and byte ranges.

use super::Store;
use super::fetch::{ReadRequest, too_large};
use crate::root::LARGEST_READ;
use crate::shards::SampleName;
use crate::{Fault, ObjectError};
use bytes::Bytes;
use frostline_tensor::SampleRef;
use object_store::ObjectMeta;
use object_store::path::Path;
use std::ops::Range;

impl Store {
    /// Reads a whole object of up to 1 GiB.
    ///
    /// # Errors
    /// Returns the errors of [`Store::read_sample`].
    pub async fn read(&self, key: &str) -> Result<Bytes, ObjectError> {
        self.read_sample(&SampleRef::new(key), LARGEST_READ).await
    }

    /// Reads an object in the given version. Objects with more than `limit` bytes are not read.
    ///
    /// # Errors
    /// Returns [`ObjectError::NotFound`] if the object does not exist, [`ObjectError::Changed`] if its etag
    /// is different, [`ObjectError::TooLarge`] if it exceeds `limit`, [`ObjectError::OutOfBudget`] if no
    /// memory is available for it, and other errors if the key is invalid or the store fails.
    pub async fn read_sample(&self, sample: &SampleRef, limit: u64) -> Result<Bytes, ObjectError> {
        let SampleRef { key, etag } = sample;
        let Some(sample) = SampleName::parse(key) else {
            let wanted = ReadRequest {
                key,
                location: self.scope.checked(key)?,
                range: None,
                etag: etag.clone(),
                limit,
                covered: false,
            };
            let read = self.confirm_refusal(|| self.scope.root.in_time(key, self.get(&wanted)));
            return self.with_storage_class(&wanted.location, read.await).await;
        };
        let stretch = self.locate(sample, etag.as_deref()).await?;
        let size = stretch.range.end - stretch.range.start;
        if size > limit {
            return Err(too_large(key, size, limit));
        }
        self.part(key, sample.shard, stretch.range, stretch.etag).await
    }

    /// Reads the bytes in `range` of an object in the given version, truncated at the end of the object.
    ///
    /// # Errors
    /// Returns [`ObjectError::TooLarge`] if the range exceeds [`LARGEST_READ`], and the errors of
    /// [`Store::read_sample`].
    pub async fn read_range(&self, sample: &SampleRef, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let SampleRef { key, etag } = sample;
        let size = range.end.saturating_sub(range.start);
        let Some(sample) = SampleName::parse(key) else {
            if size > LARGEST_READ {
                return Err(too_large(key, size, LARGEST_READ));
            }
            return self.part(key, key, range, etag.clone()).await;
        };
        let stretch = self.locate(sample, etag.as_deref()).await?;
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

    /// Returns the size in bytes of an object in the given version.
    ///
    /// # Errors
    /// Returns [`ObjectError::NotFound`] if the object does not exist, [`ObjectError::Changed`] if its etag is
    /// different, and other errors if the key is invalid or the store fails.
    pub async fn size(&self, sample: &SampleRef) -> Result<u64, ObjectError> {
        let SampleRef { key, etag } = sample;
        if let Some(sample) = SampleName::parse(key) {
            let range = self.locate(sample, etag.as_deref()).await?.range;
            return Ok(range.end - range.start);
        }
        let meta = self.head(key).await?;
        self.scope.root.check_version(key, etag.as_deref(), &meta)?;
        Ok(meta.size)
    }

    /// Returns the metadata of an object.
    pub(super) async fn head(&self, key: &str) -> Result<ObjectMeta, ObjectError> {
        let location = self.scope.checked(key)?;
        let head = async {
            let head = self.access.head(self.store.as_ref(), &location).await;
            head.map_err(|error| self.scope.root.explain(&error, key))
        };
        self.scope.root.in_time(key, head).await
    }

    /// Reads bytes of `object`, truncated at the end. Errors refer to `key`.
    async fn part(
        &self,
        key: &str,
        object: &str,
        range: Range<u64>,
        etag: Option<String>,
    ) -> Result<Bytes, ObjectError> {
        let wanted = ReadRequest {
            key,
            location: self.scope.checked(object)?,
            range: Some(range.clone()),
            etag,
            limit: LARGEST_READ,
            covered: false,
        };
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let read = self.confirm_refusal(|| {
            self.scope.root.in_time(key, async {
                match self.get(&wanted).await {
                    // Stores give different answers to a range that starts at or after the end.
                    Err(error @ (ObjectError::Store { .. } | ObjectError::Unsupported { .. })) => {
                        match self.access.head(self.store.as_ref(), &wanted.location).await {
                            Ok(meta) if range.start >= meta.size => Ok(Bytes::new()),
                            _ => Err(error),
                        }
                    }
                    got => got,
                }
            })
        });
        self.with_storage_class(&wanted.location, read.await).await
    }

    /// Adds the storage class from the store's listing if the object is archived and the answer did not name it.
    pub(super) async fn with_storage_class<T>(
        &self,
        location: &Path,
        mut read: Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        if let Err(ObjectError::Archived { class, .. }) = &mut read
            && class.is_none()
        {
            *class = self.storage_class(location).await;
        }
        read
    }

    /// Reads an object, and distinguishes a refused object from a refused root by listing the root. If the
    /// listing succeeds, the object is read once more, because the refusal may have ended in the meantime.
    async fn confirm_refusal<F>(&self, read: impl Fn() -> F) -> Result<Bytes, ObjectError>
    where
        F: Future<Output = Result<Bytes, ObjectError>>,
    {
        let mut result = read().await;
        match &mut result {
            Err(error) if error.fault() != Some(Fault::Denied) => {}
            Err(ObjectError::Denied { everywhere, .. }) => match self.list(None, 1).await {
                Ok(_) => return read().await,
                Err(_) => *everywhere = true,
            },
            _ => {}
        }
        result
    }
}
