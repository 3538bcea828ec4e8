use crate::explain::explain;
use crate::folder::{self, WalkError};
use crate::open::{Listing, Opened, open, shown};
use crate::{ObjectError, key};
use bytes::Bytes;
use frostline_tensor::{BoxFuture, ObjectReader, OpError};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long one operation may take, with its repetitions. Twice what a single request may: a stalled one is tried again.
const DEADLINE: Duration = Duration::from_secs(60);

/// Reads of one store at once. A store answers in some 30 ms; 64 keep 2,000 small objects a second coming, more than a host
/// decodes, and stay far below the number of files a process may hold open.
const READS_AT_ONCE: usize = 64;

/// Files of a page whose size and version are asked for at once; each is one system call on a thread of tokio's.
const HEADS_AT_ONCE: usize = 16;

/// What stands for the key in an error about a listing.
const LISTING: &str = "its listing";

/// The largest object that [`Store::read`] reads: the largest thing read whole is a model (VGG19's 575 MB is the biggest of the
/// usual ones), and an object that grows without end must not take the host's memory. Photos are read with limits of their own.
const LARGEST_READ: u64 = 1 << 30;

/// The most objects of one page, S3's own limit for one request.
const LARGEST_PAGE: usize = 1000;

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
    listing: Listing,
    prefix: Path,
    credentials: bool,
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
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::open_with(root, variables)
    }

    /// [`Store::open`] with S3's settings from `variables` (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ..) in place of the environment.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        root: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ObjectError> {
        let Opened {
            store,
            listing,
            prefix,
            credentials,
        } = open(root, variables)?;
        let reads = Arc::new(Semaphore::new(READS_AT_ONCE));
        Ok(Self {
            store,
            listing,
            prefix,
            credentials,
            root: shown(root),
            reads,
        })
    }

    /// The root as it was given, less credentials.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Up to `limit` objects (1 to 1,000) with keys greater than `after`, ascending by the keys' bytes. A page may be shorter than
    /// asked for and still have a next one.
    ///
    /// # Errors
    /// [`ObjectError`]; [`ObjectError::TooMany`] for a folder with over a million entries.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Page, ObjectError> {
        let limit = limit.clamp(1, LARGEST_PAGE);
        let listing = async {
            match &self.listing {
                Listing::Folder(folder) => self.list_folder(folder, after, limit).await,
                Listing::Pages(store) => self.list_page(store, after, limit).await,
                Listing::Ordered => self.list_ordered(after, limit).await,
            }
        };
        self.in_time(LISTING, listing).await
    }

    async fn list_folder(
        &self,
        root: &FilePath,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, ObjectError> {
        let (root, after) = (root.to_owned(), after.map(str::to_owned));
        let walk = tokio::task::spawn_blocking(move || folder::page(&root, after.as_deref(), limit));
        let found = walk.await.map_err(|error| self.failed(&error.to_string()))?;
        let found = found.map_err(|error| match error {
            WalkError::Io(error) => self.failed(&error.to_string()),
            WalkError::TooMany(folder) => ObjectError::TooMany {
                folder,
                root: self.root.clone(),
                limit: folder::MOST_ENTRIES,
            },
        })?;
        let next = if found.more {
            found.keys.last().cloned()
        } else {
            None
        };
        let heads = stream::iter(found.keys).map(|key| async move {
            match self.store.head(&key::checked(&key)?).await {
                Ok(meta) => Ok(Some(Object {
                    key,
                    size: meta.size,
                    etag: meta.e_tag,
                })),
                // Removed since its folder was read.
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(self.error(&error, &key)),
            }
        });
        let objects: Vec<_> = heads.buffered(HEADS_AT_ONCE).try_collect().await?;
        Ok(Page {
            objects: objects.into_iter().flatten().collect(),
            next,
        })
    }

    async fn list_page(
        &self,
        store: &AmazonS3,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, ObjectError> {
        let prefix = if self.prefix.is_root() {
            None
        } else {
            Some(format!("{}/", self.prefix))
        };
        let offset = after.map(|after| format!("{}{after}", prefix.as_deref().unwrap_or_default()));
        let options = PaginatedListOptions {
            offset,
            max_keys: Some(limit),
            ..PaginatedListOptions::default()
        };
        let page = store.list_paginated(prefix.as_deref(), options).await;
        let page = page.map_err(|error| self.error(&error, LISTING))?;
        Ok(self.page(page.result.objects, page.page_token.is_some()))
    }

    async fn list_ordered(&self, after: Option<&str>, limit: usize) -> Result<Page, ObjectError> {
        let prefix = (!self.prefix.is_root()).then_some(&self.prefix);
        let listing = match after {
            None => self.store.list(prefix),
            Some(after) => self
                .store
                .list_with_offset(prefix, &self.location(&key::checked(after)?)),
        };
        let found: Vec<_> = listing
            .take(limit + 1)
            .try_collect()
            .await
            .map_err(|error| self.error(&error, LISTING))?;
        let more = found.len() > limit;
        Ok(self.page(found.into_iter().take(limit), more))
    }

    /// A page of what a store listed, less what is no key here.
    fn page(&self, found: impl IntoIterator<Item = ObjectMeta>, more: bool) -> Page {
        let listed: Vec<Object> = found.into_iter().filter_map(|meta| self.object(meta)).collect();
        let next = if more {
            listed.last().map(|object| object.key.clone())
        } else {
            None
        };
        Page {
            objects: listed
                .into_iter()
                .filter(|object| key::checked(&object.key).is_ok())
                .collect(),
            next,
        }
    }

    /// The whole object, of at most 1 GiB; with an etag, that version of it.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], [`ObjectError::Changed`] when the object has another etag now, [`ObjectError::TooLarge`], and the
    /// store's failures.
    pub async fn read(&self, key: &str, etag: Option<&str>) -> Result<Bytes, ObjectError> {
        self.read_at_most(key, etag, LARGEST_READ).await
    }

    /// [`Store::read`] of an object of at most `limit` bytes; a larger one is not read at all.
    ///
    /// # Errors
    /// Also [`ObjectError::TooLarge`].
    pub async fn read_at_most(
        &self,
        key: &str,
        etag: Option<&str>,
        limit: u64,
    ) -> Result<Bytes, ObjectError> {
        let options = GetOptions {
            if_match: etag.map(str::to_owned),
            ..GetOptions::default()
        };
        let location = self.checked(key)?;
        self.in_time(key, async {
            let _permit = self.reads.acquire().await;
            let found = self
                .store
                .get_opts(&location, options)
                .await
                .map_err(|error| self.error(&error, key))?;
            let size = found.meta.size;
            if size > limit {
                return Err(ObjectError::TooLarge {
                    key: key.to_owned(),
                    size,
                    limit,
                });
            }
            found.bytes().await.map_err(|error| self.error(&error, key))
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
        let size = range.end - range.start;
        if size > LARGEST_READ {
            return Err(ObjectError::TooLarge {
                key: key.to_owned(),
                size,
                limit: LARGEST_READ,
            });
        }
        self.in_time(key, async {
            let _permit = self.reads.acquire().await;
            match self.store.get_range(&location, range.clone()).await {
                Ok(bytes) => Ok(bytes),
                // Stores differ in what they say of a range that starts at or after the end.
                Err(error) => match self.store.head(&location).await {
                    Ok(meta) if range.start >= meta.size => Ok(Bytes::new()),
                    _ => Err(self.error(&error, key)),
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
        let head = async {
            self.store
                .head(&location)
                .await
                .map_err(|error| self.error(&error, key))
        };
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
        let put = self
            .store
            .put_opts(&location, PutPayload::from_bytes(bytes), mode.into());
        self.in_time(key, async {
            put.await.map(drop).map_err(|error| self.error(&error, key))
        })
        .await
    }

    /// Removes the object.
    ///
    /// # Errors
    /// [`ObjectError`]; whether a missing object is one depends on the store.
    pub async fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let location = self.checked(key)?;
        self.in_time(key, async {
            self.store
                .delete(&location)
                .await
                .map_err(|error| self.error(&error, key))
        })
        .await
    }

    fn checked(&self, key: &str) -> Result<Path, ObjectError> {
        let path = key::checked(key)?;
        if !self.stays_inside(key) {
            return Err(ObjectError::Key {
                key: key.to_owned(),
                reason: "it is a link that leads out of the data root",
            });
        }
        Ok(self.location(&path))
    }

    fn stays_inside(&self, key: &str) -> bool {
        match &self.listing {
            Listing::Folder(root) => folder::holds(root, key),
            Listing::Pages(_) | Listing::Ordered => true,
        }
    }

    fn location(&self, path: &Path) -> Path {
        self.prefix.parts().chain(path.parts()).collect()
    }

    fn object(&self, meta: ObjectMeta) -> Option<Object> {
        let parts = meta.location.prefix_match(&self.prefix)?;
        let key = Path::from_iter(parts).to_string();
        Some(Object {
            key,
            size: meta.size,
            etag: meta.e_tag,
        })
    }

    fn error(&self, error: &object_store::Error, key: &str) -> ObjectError {
        explain(error, &self.root, key, self.credentials)
    }

    fn failed(&self, reason: &str) -> ObjectError {
        ObjectError::Store {
            key: LISTING.to_owned(),
            root: self.root.clone(),
            reason: reason.to_owned(),
        }
    }

    async fn in_time<T>(
        &self,
        key: &str,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let late = |_| ObjectError::Deadline {
            key: key.to_owned(),
            root: self.root.clone(),
            after: DEADLINE,
        };
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
