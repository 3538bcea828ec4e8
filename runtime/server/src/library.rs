//! What this host has for its tenants: guests and models, the stores of their data, and what guests say of models.

use crate::config::Root;
use crate::refusal::Refusal;
use crate::roots::{OpenRoot, PROBE_DEADLINE, RootHealth};
use crate::scheduling::TenantMemory;
use crate::state::{Journal, ModelFacts, Partials, SHARED, StoredVersion, UploadStore};
use bytes::Bytes;
use frostline_batching::{Kind, Memory};
use frostline_objects::{ObjectError, Store};
use frostline_sandbox::{Allowance, Guest, ModelView, Sandbox};
use frostline_wire::Description;
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Granted data roots whose stores are kept open, with their connections.
const OPEN_STORES: usize = 64;

/// Granted data roots whose indexes of shards are kept, of each tenant its own: what one has read through tells no other what it reads.
const INDEXED: usize = 1024;

/// Guests kept ready to run; loading a compiled one again takes under a millisecond.
const READY_GUESTS: usize = 64;

/// Bytes that compiling a guest takes for one of its own, and beside that: the compiler works in a process of its own, which takes some
/// 40 MiB before it begins.
const COMPILING: (u64, u64) = (100, 64 << 20);

/// How long a guest waits for memory to be compiled in.
const WAIT: Duration = Duration::from_secs(30);

/// Whose guest, which a tenant makes ready on its own account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GuestKey {
    tenant: String,
    /// SHA-256.
    guest: String,
}

/// What a description depends on, and who asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DescriptionKey {
    guest: GuestKey,
    model: String,
    parameters: String,
}

/// See the module.
pub(crate) struct Library {
    pub(crate) guests: UploadStore<()>,
    pub(crate) models: Arc<UploadStore<ModelFacts>>,
    /// What all hosts on one state did to these.
    pub(crate) journal: Arc<Journal>,
    /// Uploads on their way, and what came of those that broke off.
    pub(crate) partials: Partials,
    pub(crate) sandbox: Sandbox,
    roots: Arc<RootHealth>,
    stores: Cache<OpenRoot, Store>,
    /// By tenant.
    indexed: Arc<Cache<(String, Root), Store>>,
    ready: Cache<GuestKey, Guest>,
    descriptions: Cache<DescriptionKey, Arc<Description>>,
    memory: Memory,
}

/// What tenants have uploaded.
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
        let indexed = Arc::new(Cache::new(INDEXED));
        let indexes = Arc::clone(&indexed);
        memory.on_pressure(move |_| {
            // What they hold is given back once no lock of the cache is held.
            let dropped: Vec<_> = indexes.iter().collect();
            indexes.clear();
            drop(dropped);
        });
        Self {
            guests,
            models,
            journal,
            partials,
            sandbox,
            roots,
            stores: Cache::new(OPEN_STORES),
            indexed,
            ready: Cache::new(READY_GUESTS),
            descriptions: Cache::new(descriptions),
            memory,
        }
    }

    /// Forgets what can be had again: indexes of shards with the stores they belong to, guests made ready, descriptions.
    pub(crate) fn clear_caches(&self) {
        self.stores.clear();
        self.indexed.clear();
        self.ready.clear();
        self.descriptions.clear();
    }

    fn open(&self, root: &OpenRoot) -> Result<Store, ObjectError> {
        self.stores.get_or_insert_with(root, || self.roots.open(root))
    }

    /// Whether the store of a data root answers now.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub(crate) async fn probe(&self, root: &OpenRoot) -> Result<(), ObjectError> {
        self.open(root)?.probe(PROBE_DEADLINE).await
    }

    /// The data roots whose stores are open.
    pub(crate) fn open_roots(&self) -> Vec<OpenRoot> {
        self.stores.iter().map(|(root, _)| root).collect()
    }

    /// The store of a data root below one that was `granted` to the tenant, which is opened as a whole: nothing leads out of that, and
    /// whatever part of it is asked for, a shard has one index.
    pub(crate) fn store(&self, tenant: &str, granted: &Root, root: &Root) -> Result<Store, Refusal> {
        let granted_to = self.roots.root_for(granted, tenant);
        let of_tenant = || {
            let opened = self.open(&granted_to).map_err(|error| self.roots.shown(error));
            Ok::<_, Refusal>(opened?.with_own_indexes())
        };
        let key = (tenant.to_owned(), granted.clone());
        let store = self.indexed.get_or_insert_with(&key, of_tenant)?;
        match root.relative_to(granted) {
            Some(folder) => Ok(store.below(&folder)?),
            None => Ok(store),
        }
    }

    /// Bytes of guests and models of all versions, by tenant.
    pub(crate) fn stored_bytes(&self) -> BTreeMap<String, u64> {
        let guests = self
            .guests
            .all_names()
            .into_iter()
            .map(|guest| (guest.owner, bytes(&guest.versions)));
        let models = self
            .models
            .all_names()
            .into_iter()
            .map(|model| (model.owner, bytes(&model.versions)));
        let mut stored = BTreeMap::new();
        for (owner, bytes) in guests.chain(models).filter(|(owner, _)| owner != SHARED) {
            *stored.entry(owner).or_default() += bytes;
        }
        stored
    }

    /// Compiles a tenant's guest, unless that was done before.
    pub(crate) async fn compile(
        &self,
        tenant: &str,
        bytes: Bytes,
        allowance: &Arc<Allowance>,
    ) -> Result<Guest, Refusal> {
        let sandbox = self.sandbox.for_tenant(tenant);
        let (times, beside) = COMPILING;
        let room = TenantMemory::new(&self.memory, tenant, Kind::Grant);
        // No more than the process may take.
        let takes = (bytes.len() as u64).saturating_mul(times).saturating_add(beside);
        let most = self.memory.read(|ledger| ledger.most(Kind::Grant));
        let _memory = room.reserve(takes.min(most), WAIT).await?;
        Ok(sandbox.prepare_within(bytes, allowance).await?)
    }

    /// Keeps a tenant's guest ready to run.
    pub(crate) fn cache_guest(&self, tenant: &str, guest: Guest) {
        self.ready.insert(GuestKey::new(tenant, guest.sha256()), guest);
    }

    /// A version of a tenant's guest, ready to run.
    pub(crate) async fn guest(
        &self,
        tenant: &str,
        version: &StoredVersion<()>,
        allowance: &Arc<Allowance>,
    ) -> Result<Guest, Refusal> {
        let compile = async {
            let bytes = self.guests.read(version).await?;
            self.compile(tenant, bytes, allowance).await
        };
        let key = GuestKey::new(tenant, &version.sha256);
        self.ready.get_or_insert_async(&key, compile).await
    }

    /// What the guest says it does for the model; asked once by each tenant, so that nobody waits in another's turn.
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

/// Bytes of all versions.
fn bytes<F>(versions: &[Arc<StoredVersion<F>>]) -> u64 {
    versions.iter().map(|version| version.bytes).sum()
}

impl GuestKey {
    fn new(tenant: &str, sha256: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            guest: sha256.to_owned(),
        }
    }
}
