mod list;
mod read;
mod shards;

use crate::explain::explain;
use crate::folder;
use crate::hedge::Hedge;
use crate::open::{Credentials, Kind, Listing, Opened, open, shown};
use crate::shards::Indexes;
use crate::{ObjectError, key};
use bytes::Bytes;
use frostline_tensor::{BoxFuture, ObjectReader, OpError};
use futures::FutureExt;
pub(crate) use list::LISTING;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
pub use read::LARGEST_READ;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long one operation may take, with its repetitions. Twice what a single request may: a stalled one is tried again.
const DEADLINE: Duration = Duration::from_secs(60);

/// Reads of one store at once. A store answers in some 30 ms; 64 keep 2,000 small objects a second coming, more than a host
/// decodes, and stay far below the number of files a process may hold open.
const READS_AT_ONCE: usize = 64;

/// A root in an object store. Keys are relative to it.
#[derive(Debug, Clone)]
pub struct Store {
    store: Arc<dyn ObjectStore>,
    listing: Listing,
    prefix: Path,
    kind: Kind,
    credentials: Credentials,
    root: String,
    reads: Arc<Semaphore>,
    /// Where reads can stall.
    hedge: Option<Arc<Hedge>>,
    indexes: Arc<Indexes>,
}

impl Store {
    /// Opens a path, `file://`, `memory://` (empty, of its own), `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`
    /// (or `abfss://`) or, to read from only, `https://host/folder`. Credentials, regions and endpoints come from the environment
    /// (`AWS_*`, `GOOGLE_*`, `AZURE_*`), the vendors' own files or the machine's role; `docs/stores.md` lists them. A store across
    /// a network is not contacted yet.
    ///
    /// # Errors
    /// [`ObjectError::Root`] for an address that cannot be used, [`ObjectError::NoSuchRoot`] for a folder that does not exist.
    pub fn open(root: &str) -> Result<Self, ObjectError> {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::open_with(root, variables)
    }

    /// [`Store::open`] with the stores' settings from `variables` (`AWS_ACCESS_KEY_ID`, `HOME`, ..) in place of the environment.
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
            kind,
            credentials,
        } = open(root, &variables.into_iter().collect())?;
        let reads = Arc::new(Semaphore::new(READS_AT_ONCE));
        Ok(Self {
            store,
            listing,
            prefix,
            kind,
            credentials,
            root: shown(root),
            reads,
            hedge: kind.is_remote().then(|| Arc::new(Hedge::new())),
            indexes: Arc::new(Indexes::new()),
        })
    }

    /// The root as it was given, less credentials.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Creates the object, never replaces one.
    ///
    /// # Errors
    /// [`ObjectError::AlreadyThere`], [`ObjectError::ReadOnly`] for a web server, and the store's failures.
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
        let location = self.writable(key).await?;
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
        let location = self.writable(key).await?;
        self.in_time(key, async {
            self.store
                .delete(&location)
                .await
                .map_err(|error| self.error(&error, key))
        })
        .await
    }

    async fn writable(&self, key: &str) -> Result<Path, ObjectError> {
        if self.kind == Kind::Web {
            return Err(ObjectError::ReadOnly {
                root: self.root.clone(),
            });
        }
        self.checked(key).await
    }

    /// Where the object lies; refused unless it lies below the root once links are followed.
    async fn checked(&self, key: &str) -> Result<Path, ObjectError> {
        let path = key::checked(key)?;
        if !self.stays_inside(key).await? {
            return Err(ObjectError::Key {
                key: key.to_owned(),
                reason: "it is a link that leads out of the data root",
            });
        }
        Ok(self.location(&path))
    }

    async fn stays_inside(&self, key: &str) -> Result<bool, ObjectError> {
        let Listing::Folder(root) = &self.listing else {
            return Ok(true);
        };
        let (root, key) = (root.clone(), key.to_owned());
        let held = tokio::task::spawn_blocking(move || folder::holds(&root, &key));
        held.await.map_err(|error| self.failed(&error.to_string()))
    }

    fn location(&self, path: &Path) -> Path {
        self.prefix.parts().chain(path.parts()).collect()
    }

    fn error(&self, error: &object_store::Error, key: &str) -> ObjectError {
        explain(error, &self.root, key, self.kind, self.credentials)
    }

    /// An etag as it is asked for. Over HTTP it has quotes, which Azure's listings leave out.
    fn etag<'a>(&self, etag: &'a str) -> Cow<'a, str> {
        if self.kind.is_remote() && !etag.ends_with('"') {
            Cow::Owned(format!("\"{etag}\""))
        } else {
            Cow::Borrowed(etag)
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
