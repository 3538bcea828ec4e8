//! Uploaded guests and models, data stores, and the caches for compiled guests and descriptions.

use crate::config::Root;
use crate::partials::Partials;
use crate::refusal::Refusal;
use crate::roots::{OpenRoot, PROBE_DEADLINE, RootHealth};
use crate::scheduling::TenantMemory;
use bytes::Bytes;
use frostline_batching::{Charge, Kind, Memory, Reserved};
use frostline_objects::{ObjectError, Store};
use frostline_sandbox::{Allowance, Guest, ModelView, Sandbox};
use frostline_state::{Journal, ModelFacts, NamedUpload, SHARED, StateError, StoredVersion, UploadStore};
use frostline_wire::Description;
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// Number of granted data roots with open stores and connections.
const OPEN_STORES: usize = 64;

/// Number of stores with cached shard indexes, which are separate for each tenant and granted root. If
/// tenants shared an index, response times would reveal which shards another tenant has read.
const CACHED_INDEXES: usize = 1024;

/// Number of guests that stay ready to execute. Reloading a compiled guest needs less than a millisecond.
const READY_GUESTS: usize = 64;

/// Memory to compile a guest: bytes per byte of the guest, and a fixed number of bytes. The separate compiler
/// process needs 40 MiB at the start.
const COMPILE_MEMORY: (u64, u64) = (100, 64 << 20);

/// Maximum time that a guest waits for memory to be compiled.
const COMPILE_MEMORY_TIMEOUT: Duration = Duration::from_secs(30);

/// Concurrent checks of guests that are served from the cache. One at a time is enough, and limits the memory.
const VERIFICATIONS: usize = 1;

/// Key of a compiled guest. Every tenant compiles its guests at its own expense, so the key includes the
/// tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GuestKey {
    tenant: String,
    /// SHA-256 of the guest.
    guest: String,
}

/// Compiled guest in memory, with the reservation for it.
#[derive(Clone)]
struct ReadyGuest {
    guest: Guest,
    _memory: Arc<Reserved>,
}

/// Cache key for descriptions: tenant, guest, model and parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DescriptionKey {
    guest: GuestKey,
    model: String,
    parameters: String,
}

/// Uploaded guests and models with their caches.
pub(crate) struct Library {
    pub(crate) guests: Arc<UploadStore<()>>,
    pub(crate) models: Arc<UploadStore<ModelFacts>>,
    /// Changes to guests, models and tenants by all hosts that share the state.
    pub(crate) journal: Arc<Journal>,
    /// Uploads in progress and the received parts of interrupted uploads.
    pub(crate) partials: Partials,
    pub(crate) sandbox: Sandbox,
    /// Signaled when a tenant has deleted a guest or a model through this host.
    pub(crate) deleted: Notify,
    roots: Arc<RootHealth>,
    stores: Cache<OpenRoot, Store>,
    /// Stores with shard indexes, by tenant and granted root.
    indexed_stores: Arc<Cache<(String, OpenRoot), Store>>,
    ready_guests: Arc<Cache<GuestKey, ReadyGuest>>,
    descriptions: Cache<DescriptionKey, Arc<Description>>,
    memory: Memory,
    /// Permits for checks of guests that are served from the cache.
    verifications: Arc<Semaphore>,
}

/// Stores for guests, models and interrupted uploads.
pub(crate) struct Uploads {
    pub(crate) guests: UploadStore<()>,
    pub(crate) models: Arc<UploadStore<ModelFacts>>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) partials: Partials,
}

impl Library {
    pub(crate) fn new(
        uploads: Uploads,
        roots: Arc<RootHealth>,
        sandbox: Sandbox,
        descriptions: usize,
        memory: Memory,
    ) -> Self {
        let Uploads {
            guests,
            models,
            journal,
            partials,
        } = uploads;
        let indexed_stores = Arc::new(Cache::new(CACHED_INDEXES));
        clear_under_pressure(&memory, &indexed_stores);
        let ready_guests = Arc::new(Cache::new(READY_GUESTS));
        clear_under_pressure(&memory, &ready_guests);
        Self {
            guests: Arc::new(guests),
            models,
            journal,
            partials,
            sandbox,
            deleted: Notify::new(),
            roots,
            stores: Cache::new(OPEN_STORES),
            indexed_stores,
            ready_guests,
            descriptions: Cache::new(descriptions),
            memory,
            verifications: Arc::new(Semaphore::new(VERIFICATIONS)),
        }
    }

    /// Clears all data that can be recreated: open stores, shard indexes, compiled guests and descriptions.
    pub(crate) fn clear_caches(&self) {
        self.stores.clear();
        self.indexed_stores.clear();
        self.ready_guests.clear();
        self.descriptions.clear();
    }

    fn open(&self, root: &OpenRoot) -> Result<Store, ObjectError> {
        self.stores.get_or_insert_with(root, || self.roots.open(root))
    }

    /// Checks that the store behind a data root answers.
    ///
    /// # Errors
    ///
    /// Returns the [`ObjectError`] of opening or probing the store.
    pub(crate) async fn probe(&self, root: &OpenRoot) -> Result<(), ObjectError> {
        self.open(root)?.probe(PROBE_DEADLINE).await
    }

    /// Returns the store of `root`, which is the root `granted` to the tenant or a folder below it. The
    /// granted root is opened as a whole, so no path leads out of it and each shard has a single index for
    /// all folders.
    pub(crate) fn store(&self, tenant: &str, granted: &Root, root: &Root) -> Result<Store, Refusal> {
        let granted_to = self.roots.root_for(granted, tenant);
        let key = (tenant.to_owned(), granted_to.clone());
        let store = self.indexed_stores.get_or_insert_with(&key, || {
            let opened = self
                .open(&granted_to)
                .map_err(|error| self.roots.for_tenants(error));
            Ok::<_, Refusal>(opened?.for_tenant(tenant))
        })?;
        match root.relative_to(granted) {
            Some(folder) => Ok(store.below(&folder)?),
            None => Ok(store),
        }
    }

    /// Returns the stored bytes for each tenant, including all versions of guests and models. Shared models
    /// are not included.
    pub(crate) fn stored_bytes(&self) -> BTreeMap<String, u64> {
        let guests = self.guests.all_names().into_iter().map(bytes_by_owner);
        let models = self.models.all_names().into_iter().map(bytes_by_owner);
        let mut stored = BTreeMap::new();
        for (owner, bytes) in guests.chain(models).filter(|(owner, _)| owner != SHARED) {
            *stored.entry(owner).or_default() += bytes;
        }
        stored
    }

    /// Compiles a guest of a tenant, unless the compiled form is cached on disk.
    pub(crate) async fn compile(
        &self,
        tenant: &str,
        bytes: Bytes,
        allowance: &Arc<Allowance>,
    ) -> Result<Guest, Refusal> {
        let sandbox = self.sandbox.for_tenant(tenant);
        let (times, beside) = COMPILE_MEMORY;
        let room = TenantMemory::new(&self.memory, tenant, Kind::Grant);
        // The compiler process never gets more than this.
        let takes = (bytes.len() as u64).saturating_mul(times).saturating_add(beside);
        let most = self.memory.read(|ledger| ledger.most(Kind::Grant));
        let _memory = room.reserve(takes.min(most), COMPILE_MEMORY_TIMEOUT).await?;
        Ok(sandbox.prepare_within(bytes, allowance).await?)
    }

    /// Caches a compiled guest of a tenant, if there is memory for it.
    pub(crate) fn cache_guest(&self, tenant: &str, guest: Guest) {
        let key = GuestKey::new(tenant, guest.sha256());
        if let Some(ready) = self.ready(guest) {
            self.ready_guests.insert(key, ready);
        }
    }

    /// Reserves the memory of a loaded guest for the cache. Returns `None` if it is not available now.
    fn ready(&self, guest: Guest) -> Option<ReadyGuest> {
        let reserved = self.memory.try_cache(guest.loaded_bytes())?;
        Some(ReadyGuest {
            guest,
            _memory: Arc::new(reserved),
        })
    }

    /// Returns a version of a tenant's guest, compiled if necessary. The state is only read if this host has not
    /// compiled the guest before.
    pub(crate) async fn guest(
        &self,
        tenant: &str,
        version: &StoredVersion<()>,
        allowance: &Arc<Allowance>,
    ) -> Result<Guest, Refusal> {
        let key = GuestKey::new(tenant, &version.sha256);
        let entry = match self.ready_guests.get_value_or_guard_async(&key).await {
            Ok(ready) => return Ok(ready.guest),
            Err(entry) => entry,
        };
        let sandbox = self.sandbox.for_tenant(tenant);
        let guest = match sandbox.cached(&version.sha256, allowance).await? {
            Some(guest) => {
                self.verify_later(tenant, version);
                guest
            }
            None => {
                let bytes = self.guests.read(version).await?;
                self.compile(tenant, bytes, allowance).await?
            }
        };
        if let Some(ready) = self.ready(guest.clone()) {
            // The entry is gone if the cache was cleared meanwhile.
            let _ = entry.insert(ready);
        }
        Ok(guest)
    }

    /// Checks the stored bytes of a guest that is served from the cache, and logs if they are missing or corrupt.
    /// Does nothing if other checks are running or memory is short: `frostline admin state verify` checks all bytes.
    fn verify_later(&self, tenant: &str, version: &StoredVersion<()>) {
        let Ok(permit) = Arc::clone(&self.verifications).try_acquire_owned() else {
            return;
        };
        let room = TenantMemory::new(&self.memory, tenant, Kind::Grant);
        let Ok(memory) = room.try_reserve(version.bytes) else {
            return;
        };
        let guests = Arc::clone(&self.guests);
        let version = version.clone();
        let tenant = tenant.to_owned();
        tokio::spawn(Charge::current().pay_for(async move {
            if let Err(error @ (StateError::Gone { .. } | StateError::Damaged { .. })) =
                guests.read(&version).await
            {
                tracing::warn!(tenant, %error, "serving a compiled guest whose bytes cannot be read");
            }
            drop((permit, memory));
        }));
    }

    /// Returns the guest's description of the model. Each tenant asks the guest once, so that tenants do not
    /// wait for each other.
    pub(crate) async fn describe(
        &self,
        tenant: &str,
        guest: &Guest,
        model: &Arc<ModelView>,
        parameters: &str,
        allowance: &Arc<Allowance>,
    ) -> Result<Arc<Description>, Refusal> {
        let key = DescriptionKey {
            guest: GuestKey::new(tenant, guest.sha256()),
            model: model.sha256.clone(),
            parameters: parameters.to_owned(),
        };
        let ask = async {
            let described = guest.describe_within(model, parameters, allowance).await;
            described
                .map(Arc::new)
                .map_err(|error| Refusal::extraction(error, tenant))
        };
        self.descriptions.get_or_insert_async(&key, ask).await
    }
}

/// Clears `cache` when memory is short.
fn clear_under_pressure<K, V>(memory: &Memory, cache: &Arc<Cache<K, V>>)
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let cache = Arc::clone(cache);
    memory.on_pressure(move |_| {
        // Drop the values after the lock of the cache is released, because dropping them returns memory.
        let dropped: Vec<_> = cache.iter().collect();
        cache.clear();
        drop(dropped);
    });
}

/// Returns the owner of a guest or model and the sum of the bytes of all versions.
fn bytes_by_owner<F>(named: NamedUpload<F>) -> (String, u64) {
    let bytes = named.versions.iter().map(|version| version.bytes);
    (named.owner, bytes.sum())
}

impl GuestKey {
    fn new(tenant: &str, sha256: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            guest: sha256.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_batching::Ledger;

    #[test]
    fn caches_are_cleared_when_memory_is_short() {
        let memory = Memory::unbounded();
        let cache = Arc::new(Cache::new(4));
        clear_under_pressure(&memory, &cache);
        for key in ["a", "b"] {
            cache.insert(key, Arc::new(memory.try_cache(10).unwrap()));
        }
        assert_eq!(memory.read(Ledger::held_in_all), 20);
        memory.request_release(1);
        assert_eq!((cache.len(), memory.read(Ledger::held_in_all)), (0, 0));
    }
}
