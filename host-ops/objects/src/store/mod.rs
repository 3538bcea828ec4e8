mod fetch;
mod list;
mod read;
mod shards;

use crate::access::Access;
use crate::dates::{AnswerDates, ClockReading};
use crate::hedge::Hedge;
use crate::kind::Kind;
use crate::on_fault::OnFault;
use crate::open::{Listing, Opened, OwnStore, open};
use crate::room::{ReadRoom, Room};
use crate::root::Root;
use crate::scope::Scope;
use crate::shards::Indexes;
use crate::{Fault, ObjectError};
use bytes::Bytes;
use frostline_batching::Charge;
use frostline_tensor::{BoxFuture, ObjectReader, OpError, SampleRef, without_secrets};
use futures::{FutureExt, TryFutureExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A root in an object store. Keys are relative to it.
#[derive(Debug, Clone)]
pub struct Store {
    store: Arc<dyn ObjectStore>,
    scope: Scope,
    listing: Listing,
    /// True if the store was found to list keys in another order than byte order.
    unordered: Arc<AtomicBool>,
    /// Hedging of remote reads.
    hedge: Option<Arc<Hedge>>,
    access: Access,
    /// Memory for reads and listings.
    room: Room,
    indexes: Arc<Indexes>,
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
        let opened = open(root, &variables.into_iter().collect(), None)?;
        Ok(Self::from_opened(root, opened))
    }

    /// Opens an S3 store as [`Store::open`] does, with its own settings instead of the environment.
    ///
    /// # Errors
    /// Returns the errors of [`Store::open`], and [`ObjectError::Root`] if the key file contains no keys.
    pub fn open_own(root: &str, own: &OwnStore) -> Result<Self, ObjectError> {
        let opened = open(root, &own.variables, Some(own))?;
        Ok(Self::from_opened(root, opened))
    }

    fn from_opened(root: &str, opened: Opened) -> Self {
        let root = Root {
            shown: without_secrets(root),
            kind: opened.kind,
            credentials: opened.credentials,
            on_fault: OnFault::default(),
        };
        Self {
            store: opened.store,
            scope: Scope {
                root: Arc::new(root),
                prefix: opened.prefix,
            },
            listing: opened.listing,
            unordered: Arc::default(),
            hedge: opened.kind.is_remote().then(|| Arc::new(Hedge::new())),
            access: Access::new(),
            room: Room::default(),
            indexes: Indexes::new(),
            unconditional: Arc::default(),
            dates: opened.dates,
        }
    }

    /// Returns this store with reads and listings into memory from `room`, which also counts the bytes that are
    /// read, and pays for the threads that read. Memory is reserved before the first byte of an object is read,
    /// and released when all bytes are dropped.
    #[must_use]
    pub fn reading_into(&self, room: Arc<dyn ReadRoom>) -> Self {
        let mut store = self.clone();
        store.access.charge = room.charge();
        store.room = Room(Some(room));
        store
    }

    /// Returns this store with the threads that read and write paid from `charge`.
    #[must_use]
    pub fn charging(&self, charge: Charge) -> Self {
        let mut store = self.clone();
        store.access.charge = charge;
        store
    }

    /// Returns the part of this root below `folder`. Connections and shard indexes are shared with this
    /// store.
    ///
    /// # Errors
    /// Returns [`ObjectError::Key`] if `folder` is not a valid key.
    pub fn below(&self, folder: &str) -> Result<Self, ObjectError> {
        Ok(Self {
            scope: self.scope.below_folder(folder)?,
            ..self.clone()
        })
    }

    /// Returns this store for a tenant, with a separate cache of shard indexes. A tenant can use half of the
    /// permits for concurrent reads.
    #[must_use]
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self {
            access: self.access.of_tenant(tenant),
            indexes: Indexes::new(),
            ..self.clone()
        }
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
        let mut store = self.clone();
        Arc::make_mut(&mut store.scope.root).on_fault = on_fault;
        store
    }

    /// Returns the latest reading of the store's clock, or `None` for a local folder and before the first answer.
    pub fn clock(&self) -> Option<ClockReading> {
        self.dates.latest()
    }

    /// Returns the root as given, without credentials.
    pub fn root(&self) -> &str {
        &self.scope.root.shown
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
            extensions: self.access.extensions(),
            ..PutOptions::default()
        };
        let put = self.store.put_opts(&location, bytes.into(), options);
        let put = put
            .map_ok(drop)
            .map_err(|error| self.scope.root.explain(&error, key));
        self.scope.root.in_time(key, put).await
    }

    /// Removes an object.
    ///
    /// # Errors
    /// Returns [`ObjectError::ReadOnly`] for a web server, and other errors if the key is invalid or the
    /// store fails. Some stores also return an error for a missing object.
    pub async fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let location = self.writable(key)?;
        let deleted = self.store.delete(&location);
        let deleted = deleted.map_err(|error| self.scope.root.explain(&error, key));
        self.scope.root.in_time(key, deleted).await
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
