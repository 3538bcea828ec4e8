mod read;
mod shards;

pub use read::LARGEST_READ;

use crate::fault::OnFault;
use crate::fetch::Fetcher;
use crate::kind::Kind;
use crate::list::Lister;
use crate::open::{Opened, OwnStore, open, shown};
use crate::room::{ReadRoom, Room};
use crate::root::Root;
use crate::scope::Scope;
use crate::shards::Indexes;
use crate::{Fault, ObjectError};
use bytes::Bytes;
use frostline_tensor::{BoxFuture, ObjectPage, ObjectReader, OpError};
use futures::FutureExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A root in an object store. Keys are relative to it.
#[derive(Debug, Clone)]
pub struct Store {
    store: Arc<dyn ObjectStore>,
    scope: Scope,
    lister: Lister,
    fetcher: Arc<Fetcher>,
    indexes: Arc<Indexes>,
    room: Room,
    /// Whether the store was found not to know conditions.
    unconditional: Arc<AtomicBool>,
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
        Self::from_opened(root, open(root, &variables.into_iter().collect(), None)?)
    }

    /// [`Store::open`] of an S3 store with settings of its own in place of the environment's.
    ///
    /// # Errors
    /// As [`Store::open`], also for a file without keys.
    pub fn open_own(root: &str, own: &OwnStore) -> Result<Self, ObjectError> {
        Self::from_opened(root, open(root, &own.variables, Some(own))?)
    }

    fn from_opened(root: &str, opened: Opened) -> Result<Self, ObjectError> {
        let Opened {
            store,
            listing,
            prefix,
            kind,
            credentials,
        } = opened;
        let root = Arc::new(Root {
            shown: shown(root),
            kind,
            credentials,
            on_fault: OnFault::default(),
        });
        let scope = Scope { root, prefix };
        let lister = Lister {
            store: Arc::clone(&store),
            scope: scope.clone(),
            listing,
            unordered: Arc::default(),
        };
        Ok(Self {
            fetcher: Arc::new(Fetcher::new(Arc::clone(&store), kind)),
            store,
            scope,
            lister,
            indexes: Indexes::new(),
            room: Room::default(),
            unconditional: Arc::default(),
        })
    }

    /// The same store, whose objects are read into memory that `room` lends: each from before its first byte until the last of it is
    /// dropped.
    #[must_use]
    pub fn reading_into(&self, room: Arc<dyn ReadRoom>) -> Self {
        Self {
            room: Room(Some(room)),
            ..self.clone()
        }
    }

    /// The part of this root below `folder`, which shares its connections and indexes with all others.
    ///
    /// # Errors
    /// [`ObjectError::Key`] for what is no folder's name.
    pub fn below(&self, folder: &str) -> Result<Self, ObjectError> {
        let scope = self.scope.below_folder(folder)?;
        let lister = Lister {
            scope: scope.clone(),
            ..self.lister.clone()
        };
        Ok(Self {
            scope,
            lister,
            ..self.clone()
        })
    }

    /// The same store, with indexes of shards of its own.
    #[must_use]
    pub fn with_own_indexes(&self) -> Self {
        Self {
            indexes: Indexes::new(),
            ..self.clone()
        }
    }

    /// The same store, whose failures `told` hears of: once an operation failed for good, its repetitions included.
    #[must_use]
    pub fn on_fault(&self, told: impl Fn(Fault, &ObjectError) + Send + Sync + 'static) -> Self {
        self.watched(OnFault::new(told, false))
    }

    /// The same for others to use: `told` hears what to do about a failure, and they nothing of the settings by which the store is opened.
    #[must_use]
    pub fn lend(&self, told: impl Fn(Fault, &ObjectError) + Send + Sync + 'static) -> Self {
        self.watched(OnFault::new(told, true))
    }

    fn watched(&self, on_fault: OnFault) -> Self {
        let root = Arc::new(Root {
            on_fault,
            ..(*self.scope.root).clone()
        });
        let scope = Scope {
            root,
            ..self.scope.clone()
        };
        Self {
            lister: Lister {
                scope: scope.clone(),
                ..self.lister.clone()
            },
            scope,
            ..self.clone()
        }
    }

    /// Whether the root answers within `deadline`, at the cost of one request. A web server is not asked. Errors are for who runs this process.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn probe(&self, deadline: Duration) -> Result<(), ObjectError> {
        self.lister.probe(deadline).await
    }

    /// The root as it was given, less credentials.
    pub fn root(&self) -> &str {
        &self.scope.root.shown
    }

    /// Up to `limit` objects (1 to 1,000) with keys greater than `after`, ascending by the keys' bytes. A page may be shorter than
    /// asked for and still have a next one.
    ///
    /// # Errors
    /// [`ObjectError`]; [`ObjectError::TooMany`] for a folder with over a million entries, [`ObjectError::NoListing`] for a web server
    /// that does not list its files.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        Ok(self.lister.page(after, limit).await?.into())
    }

    /// Creates the object, never replaces one.
    ///
    /// # Errors
    /// [`ObjectError::AlreadyThere`], [`ObjectError::ReadOnly`] for a web server, and the store's failures.
    pub async fn put_new(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        self.put_in_mode(key, bytes, PutMode::Create).await
    }

    /// [`Store::put_new`] of an object whose key says what is in it, so that nothing is lost where two write it at once: a store that does
    /// not know how to create one only where none is gets it written where none was seen.
    ///
    /// # Errors
    /// As [`Store::put_new`].
    pub async fn put_same(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        if !self.unconditional.load(Ordering::Relaxed) {
            match self.put_new(key, bytes.clone()).await {
                Err(ObjectError::Unsupported { .. }) => self.unconditional.store(true, Ordering::Relaxed),
                done => return done,
            }
        }
        match self.head(key).await {
            Ok(_) => Err(ObjectError::AlreadyThere {
                key: key.to_owned(),
                root: self.scope.root.shown.clone(),
            }),
            Err(error) if error.is_not_found() => self.put(key, bytes).await,
            Err(error) => Err(error),
        }
    }

    /// Writes the object, replacing one that is there.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        self.put_in_mode(key, bytes, PutMode::Overwrite).await
    }

    async fn put_in_mode(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<(), ObjectError> {
        let location = self.writable(key)?;
        let put = self
            .store
            .put_opts(&location, PutPayload::from_bytes(bytes), mode.into());
        self.scope
            .root
            .in_time(key, async {
                put.await
                    .map(drop)
                    .map_err(|error| self.scope.root.explain(&error, key))
            })
            .await
    }

    /// Removes the object.
    ///
    /// # Errors
    /// [`ObjectError`]; whether a missing object is one depends on the store.
    pub async fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let location = self.writable(key)?;
        self.scope
            .root
            .in_time(key, async {
                self.store
                    .delete(&location)
                    .await
                    .map_err(|error| self.scope.root.explain(&error, key))
            })
            .await
    }

    fn writable(&self, key: &str) -> Result<Path, ObjectError> {
        if self.scope.root.kind == Kind::Web {
            return Err(ObjectError::ReadOnly {
                root: self.scope.root.shown.clone(),
            });
        }
        self.scope.checked(key)
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
