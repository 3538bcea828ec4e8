mod read;
mod shards;

use crate::access::Access;
use crate::dates::{AnswerDates, ClockReading};
use crate::fetch::Fetcher;
use crate::kind::Kind;
use crate::list::Lister;
use crate::on_fault::OnFault;
use crate::open::{Opened, OwnStore, open};
use crate::room::{ReadRoom, Room};
use crate::root::Root;
use crate::scope::Scope;
use crate::shards::Indexes;
use crate::{Fault, ObjectError};
use bytes::Bytes;
use frostline_batching::Charge;
use frostline_tensor::{BoxFuture, ObjectPage, ObjectReader, OpError, SampleRef, without_secrets};
use futures::FutureExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
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
    /// True if the store was found not to support conditional writes.
    unconditional: Arc<AtomicBool>,
    dates: AnswerDates,
}

impl Store {
    /// Opens a path, `file://`, `memory://` (a new, empty store), `s3://bucket/prefix`, `gs://bucket/prefix`,
    /// `az://container/prefix` (or `abfss://`), or `https://host/folder` for reading only. Reads credentials,
    /// regions and endpoints from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`), the vendors'
    /// configuration files, or the machine's role. See `docs/stores.md`. Remote stores are not contacted yet.
    ///
    /// # Errors
    /// Returns [`ObjectError::Root`] if the address cannot be used, and [`ObjectError::NoSuchRoot`] if the
    /// folder does not exist.
    pub fn open(root: &str) -> Result<Self, ObjectError> {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::open_with(root, variables)
    }

    /// Opens a store as [`Store::open`] does, with the settings in `variables` (`AWS_ACCESS_KEY_ID`, `HOME`,
    /// ..) instead of the environment.
    ///
    /// # Errors
    /// Returns the errors of [`Store::open`].
    pub fn open_with(
        root: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ObjectError> {
        Self::from_opened(root, open(root, &variables.into_iter().collect(), None)?)
    }

    /// Opens an S3 store as [`Store::open`] does, with its own settings instead of the environment.
    ///
    /// # Errors
    /// Returns the errors of [`Store::open`], and [`ObjectError::Root`] if the key file contains no keys.
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
            dates,
        } = opened;
        let root = Arc::new(Root {
            shown: without_secrets(root),
            kind,
            credentials,
            on_fault: OnFault::default(),
        });
        let scope = Scope { root, prefix };
        let lister = Lister {
            store: Arc::clone(&store),
            scope: scope.clone(),
            listing,
            room: Room::default(),
            unordered: Arc::default(),
            access: Access::new(),
        };
        Ok(Self {
            fetcher: Arc::new(Fetcher::new(Arc::clone(&store), kind)),
            store,
            scope,
            lister,
            indexes: Indexes::new(),
            room: Room::default(),
            unconditional: Arc::default(),
            dates,
        })
    }

    /// Returns this store with reads and listings into memory from `room`, which also counts the bytes that are
    /// read, and pays for the threads that read. Memory is reserved before the first byte of an object is read,
    /// and released when all bytes are dropped.
    #[must_use]
    pub fn reading_into(&self, room: Arc<dyn ReadRoom>) -> Self {
        let mut store = self.clone();
        store.lister.access.charge = room.charge();
        store.room = Room(Some(room));
        store.lister.room = store.room.clone();
        store
    }

    /// Returns this store with the threads that read and write paid from `charge`.
    #[must_use]
    pub fn charging(&self, charge: Charge) -> Self {
        let mut store = self.clone();
        store.lister.access.charge = charge;
        store
    }

    /// Returns the part of this root below `folder`. Connections and shard indexes are shared with this
    /// store.
    ///
    /// # Errors
    /// Returns [`ObjectError::Key`] if `folder` is not a valid key.
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

    /// Returns this store for a tenant, with a separate cache of shard indexes. A tenant can use half of the
    /// permits for concurrent reads.
    #[must_use]
    pub fn for_tenant(&self, tenant: &str) -> Self {
        let mut store = self.clone();
        store.lister.access = self.lister.access.of_tenant(tenant);
        store.indexes = Indexes::new();
        store
    }

    /// Returns this store with a callback for failures. Calls `told` once per failed operation, after all
    /// retries.
    #[must_use]
    pub fn on_fault(&self, told: impl Fn(Fault, &ObjectError) + Send + Sync + 'static) -> Self {
        self.watched(OnFault::new(told, false))
    }

    /// Returns this store for other users. `told` receives errors with advice about the settings that open
    /// the store; the users receive errors without it.
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

    /// Checks that the root answers within `deadline`, usually with one request. A web server is not
    /// contacted. Errors are meant for the operator of this process.
    ///
    /// # Errors
    /// Returns an error if the root does not exist, cannot be reached or does not answer in time, or if the
    /// store fails.
    pub async fn probe(&self, deadline: Duration) -> Result<(), ObjectError> {
        self.lister.probe(deadline).await
    }

    /// Returns the latest reading of the store's clock, or `None` for a local folder and before the first answer.
    pub fn clock(&self) -> Option<ClockReading> {
        self.dates.latest()
    }

    /// Returns the root as given, without credentials.
    pub fn root(&self) -> &str {
        &self.scope.root.shown
    }

    /// Lists up to `limit` objects (1 to 1,000) with keys greater than `after`, ascending by the bytes of the
    /// keys. A page may contain fewer objects even if more follow.
    ///
    /// # Errors
    /// Returns [`ObjectError::TooMany`] if a folder has more than a million entries or a web server lists
    /// more than 100,000 objects, [`ObjectError::LongListing`] if it lists more than 64 MiB,
    /// [`ObjectError::NoListing`] if a web server does not list its files, [`ObjectError::OutOfBudget`] if no
    /// memory is available, and other errors if the store fails.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<ObjectPage, ObjectError> {
        Ok(self.lister.page(after, limit).await?.into())
    }

    /// Creates an object without replacing an existing one.
    ///
    /// # Errors
    /// Returns [`ObjectError::AlreadyThere`] if the object exists, [`ObjectError::ReadOnly`] for a web
    /// server, [`ObjectError::Unsupported`] if the store has no conditional writes, and other errors if the
    /// key is invalid or the store fails.
    pub async fn put_new(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        self.put_in_mode(key, bytes, PutMode::Create).await
    }

    /// Creates an object with a key that identifies the content. Concurrent writers cannot lose data. If the
    /// store does not support conditional writes, the object is written if it is not found.
    ///
    /// # Errors
    /// Returns the errors of [`Store::put_new`], except that conditional writes are not required.
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

    /// Writes an object and replaces an existing one.
    ///
    /// # Errors
    /// Returns [`ObjectError::ReadOnly`] for a web server, and other errors if the key is invalid or the
    /// store fails.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        self.put_in_mode(key, bytes, PutMode::Overwrite).await
    }

    async fn put_in_mode(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<(), ObjectError> {
        let location = self.writable(key)?;
        let options = PutOptions {
            mode,
            extensions: self.lister.access.extensions(),
            ..PutOptions::default()
        };
        let put = self
            .store
            .put_opts(&location, PutPayload::from_bytes(bytes), options);
        self.scope
            .root
            .in_time(key, async {
                put.await
                    .map(drop)
                    .map_err(|error| self.scope.root.explain(&error, key))
            })
            .await
    }

    /// Removes an object.
    ///
    /// # Errors
    /// Returns [`ObjectError::ReadOnly`] for a web server, and other errors if the key is invalid or the
    /// store fails. Some stores also return an error for a missing object.
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
    fn size(&self, sample: SampleRef) -> BoxFuture<Result<u64, OpError>> {
        let store = self.clone();
        async move { Ok(Self::size(&store, &sample).await?) }.boxed()
    }

    fn read(&self, sample: SampleRef, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>> {
        let store = self.clone();
        async move { Ok(store.read_range(&sample, range).await?.to_vec()) }.boxed()
    }
}
