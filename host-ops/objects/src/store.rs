use crate::open::{Opened, open};
use crate::{ObjectError, key};
use bytes::Bytes;
use frostline_tensor::{BoxFuture, ObjectReader, OpError};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long one operation may take, with its repetitions. Twice what a single request may: a stalled one is tried again.
const DEADLINE: Duration = Duration::from_secs(60);

/// Reads of one store at once. A store answers in some 30 ms; 64 keep 2,000 small objects a second coming, more than a host
/// decodes, and stay far below the number of files a process may hold open.
const READS_AT_ONCE: usize = 64;

/// Objects a local listing may hold in memory while it is sorted, at about 200 bytes each. ImageNet has 1.3 million.
const LISTED_AT_MOST: usize = 4_000_000;

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key, relative to the root.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its version.
    pub etag: Option<String>,
}

/// Objects by ascending key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Object>,
    /// Pass as `after` for the next page; none on the last.
    pub next: Option<String>,
}

/// A root in an object store. Keys are relative to it.
#[derive(Debug, Clone)]
pub struct Store {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    folder: Option<PathBuf>,
    root: String,
    reads: Arc<Semaphore>,
}

impl Store {
    /// Opens a path, `file://`, `memory://` (empty, of its own) or `s3://bucket/prefix`. S3's credentials, region and endpoint come
    /// from the environment (`AWS_*`). A store across a network is not contacted yet.
    ///
    /// # Errors
    /// [`ObjectError::Root`] for an address that cannot be used, [`ObjectError::NoSuchRoot`] for a folder that does not exist.
    pub fn open(root: &str) -> Result<Self, ObjectError> {
        let Opened { store, prefix, folder } = open(root)?;
        Ok(Self { store, prefix, folder, root: root.to_owned(), reads: Arc::new(Semaphore::new(READS_AT_ONCE)) })
    }

    /// The root as it was given.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Up to `limit` objects (at least 1) with keys greater than `after`, ascending.
    ///
    /// # Errors
    /// [`ObjectError`]; [`ObjectError::TooMany`] for a folder with over four million files.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Page, ObjectError> {
        let limit = limit.max(1);
        let after = after.map(key::checked).transpose()?;
        let found = self.in_time("its listing", self.found(after.as_ref(), limit)).await?;
        let more = found.len() > limit;
        let listed: Vec<Object> = found.into_iter().take(limit).filter_map(|meta| self.object(meta)).collect();
        let next = if more { listed.last().map(|object| object.key.clone()) } else { None };
        let objects = listed.into_iter().filter(|object| self.stays_inside(&object.key)).collect();
        Ok(Page { objects, next })
    }

    /// The first `limit` and one more, ascending by location.
    async fn found(&self, after: Option<&Path>, limit: usize) -> Result<Vec<ObjectMeta>, ObjectError> {
        let prefix = (!self.prefix.is_root()).then_some(&self.prefix);
        let stream = match after {
            None => self.store.list(prefix),
            Some(after) => self.store.list_with_offset(prefix, &self.location(after)),
        };
        let stream = stream.map_err(|error| ObjectError::of(error, &self.root, "its listing"));
        if self.folder.is_none() {
            return stream.take(limit + 1).try_collect().await;
        }
        // Folders are listed in no order.
        let mut all: Vec<ObjectMeta> = stream.take(LISTED_AT_MOST + 1).try_collect().await?;
        if all.len() > LISTED_AT_MOST {
            return Err(ObjectError::TooMany { root: self.root.clone(), limit: LISTED_AT_MOST });
        }
        all.sort_by(|a, b| a.location.cmp(&b.location));
        all.truncate(limit + 1);
        Ok(all)
    }

    /// The whole object; with an etag, that version of it.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], [`ObjectError::Changed`] when the object has another etag now, and the store's failures.
    pub async fn read(&self, key: &str, etag: Option<&str>) -> Result<Bytes, ObjectError> {
        self.read_at_most(key, etag, u64::MAX).await
    }

    /// [`Store::read`] of an object of at most `limit` bytes; a larger one is not read at all.
    ///
    /// # Errors
    /// Also [`ObjectError::TooLarge`].
    pub async fn read_at_most(&self, key: &str, etag: Option<&str>, limit: u64) -> Result<Bytes, ObjectError> {
        let options = GetOptions { if_match: etag.map(str::to_owned), ..GetOptions::default() };
        let location = self.checked(key)?;
        self.in_time(key, async {
            let _permit = self.reads.acquire().await;
            let found = self.store.get_opts(&location, options).await.map_err(|error| self.error(error, key))?;
            let size = found.meta.size;
            if size > limit {
                return Err(ObjectError::TooLarge { key: key.to_owned(), size, limit });
            }
            found.bytes().await.map_err(|error| self.error(error, key))
        })
        .await
    }

    /// The bytes of `range`, cut off at the object's end.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let location = self.checked(key)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.in_time(key, async {
            let _permit = self.reads.acquire().await;
            match self.store.get_range(&location, range.clone()).await {
                Ok(bytes) => Ok(bytes),
                // Stores differ in what they say of a range that starts at or after the end.
                Err(error) => match self.store.head(&location).await {
                    Ok(meta) if range.start >= meta.size => Ok(Bytes::new()),
                    _ => Err(self.error(error, key)),
                },
            }
        })
        .await
    }

    /// The object's size in bytes.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn size(&self, key: &str) -> Result<u64, ObjectError> {
        let location = self.checked(key)?;
        let head = async { self.store.head(&location).await.map_err(|error| self.error(error, key)) };
        Ok(self.in_time(key, head).await?.size)
    }

    /// Creates the object, never replaces one.
    ///
    /// # Errors
    /// [`ObjectError::AlreadyThere`], and the store's failures.
    pub async fn put_new(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        self.put_in_mode(key, bytes, PutMode::Create).await
    }

    /// Writes the object, replacing one that is there.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        self.put_in_mode(key, bytes, PutMode::Overwrite).await
    }

    async fn put_in_mode(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<(), ObjectError> {
        let location = self.checked(key)?;
        let put = self.store.put_opts(&location, PutPayload::from_bytes(bytes), mode.into());
        self.in_time(key, async { put.await.map(drop).map_err(|error| self.error(error, key)) }).await
    }

    /// Removes the object.
    ///
    /// # Errors
    /// [`ObjectError`]; whether a missing object is one depends on the store.
    pub async fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let location = self.checked(key)?;
        self.in_time(key, async { self.store.delete(&location).await.map_err(|error| self.error(error, key)) }).await
    }

    fn checked(&self, key: &str) -> Result<Path, ObjectError> {
        let path = key::checked(key)?;
        if !self.stays_inside(key) {
            return Err(ObjectError::Key { key: key.to_owned(), reason: "it is a link that leads out of the data root" });
        }
        Ok(self.location(&path))
    }

    /// Whether a local file lies below the root once links are followed. What does not exist leads nowhere.
    fn stays_inside(&self, key: &str) -> bool {
        let Some(folder) = &self.folder else { return true };
        folder.join(key).canonicalize().map_or(true, |real| real.starts_with(folder))
    }

    fn location(&self, path: &Path) -> Path {
        self.prefix.parts().chain(path.parts()).collect()
    }

    fn object(&self, meta: ObjectMeta) -> Option<Object> {
        let parts = meta.location.prefix_match(&self.prefix)?;
        let key = Path::from_iter(parts).to_string();
        Some(Object { key, size: meta.size, etag: meta.e_tag })
    }

    fn error(&self, error: object_store::Error, key: &str) -> ObjectError {
        ObjectError::of(error, &self.root, key)
    }

    async fn in_time<T>(&self, key: &str, work: impl Future<Output = Result<T, ObjectError>>) -> Result<T, ObjectError> {
        let late = |_| ObjectError::Deadline { key: key.to_owned(), root: self.root.clone(), after: DEADLINE };
        tokio::time::timeout(DEADLINE, work).await.map_err(late)?
    }
}

impl ObjectReader for Store {
    fn size(&self, key: String) -> BoxFuture<Result<u64, OpError>> {
        let store = self.clone();
        async move { Ok(Self::size(&store, &key).await?) }.boxed()
    }

    fn read(&self, key: String, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>> {
        let store = self.clone();
        async move { Ok(store.read_range(&key, range).await?.to_vec()) }.boxed()
    }
}
