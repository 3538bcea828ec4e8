//! What a tenant may use of the host's memory, stores, lanes and time.

use super::Caller;
use crate::config::Root;
use crate::refusal::Refusal;
use crate::scheduling::{Permit, Room, Tensors};
use crate::state::StateError;
use crate::tenants::Tenant;
use frostline_batching::Kind;
use frostline_engine::TenantLanes;
use frostline_objects::Store;
use frostline_sandbox::Allowance;
use frostline_tensor::{RunTerms, Terms};
use frostline_wire::QuotaKey;
use std::sync::Arc;

impl Caller {
    /// Holds `wanted` of something against what the tenant may use.
    ///
    /// # Errors
    /// [`Refusal::Quota`].
    pub(crate) fn within(&self, key: QuotaKey, wanted: u64) -> Result<(), Refusal> {
        let limit = self.tenant().allowed.get(key);
        if wanted <= limit {
            return Ok(());
        }
        Err(Refusal::Quota {
            tenant: self.tenant().name.clone(),
            key,
            wanted,
            limit,
        })
    }

    /// Whether `more` bytes may be stored beside what the tenant has.
    ///
    /// # Errors
    /// [`StateError::Full`].
    pub(crate) fn may_store(&self, more: u64) -> Result<(), StateError> {
        let stored = self.guests().bytes().saturating_add(self.models().bytes());
        let (wanted, limit) = (
            stored.saturating_add(more),
            self.tenant().allowed.get(QuotaKey::StoredBytes),
        );
        if wanted <= limit {
            return Ok(());
        }
        Err(StateError::Full {
            tenant: self.tenant().name.clone(),
            wanted,
            limit,
        })
    }

    /// Whether `more` bytes of what is known of models may be kept in memory beside those of the tenant's.
    ///
    /// # Errors
    /// [`StateError::Facts`].
    pub(crate) fn may_keep(&self, more: u64) -> Result<(), StateError> {
        let versions = self.models().names().into_iter().flat_map(|named| named.versions);
        let kept: u64 = versions.map(|version| version.facts.kept_bytes()).sum();
        let (wanted, limit) = (kept.saturating_add(more), self.config().limits.facts_bytes);
        if wanted <= limit {
            return Ok(());
        }
        Err(StateError::Facts {
            tenant: self.tenant().name.clone(),
            wanted,
            limit,
        })
    }

    /// The host's memory of one kind, for the tenant.
    pub(crate) fn room(&self, kind: Kind) -> Room {
        Room::new(&self.scheduling().memory, &self.tenant().name, kind)
    }

    /// The store of a data root, if the tenant may read it. Its objects are read into memory of that kind.
    pub(crate) fn store(&self, root: &str, kind: Kind) -> Result<Arc<Store>, Refusal> {
        let parsed =
            Root::parse(root).map_err(|why| Refusal::request(format!("data root {root:?}: {why}")))?;
        let granted = self.tenant().data.granting(&parsed).ok_or_else(|| {
            Refusal::not_found(format!(
                "data root {root:?} is not granted to your tenant; the operator grants it by 'data' in the host's configuration or frostline admin tenant set"
            ))
        })?;
        let store = self.library().store(&self.tenant().name, granted, &parsed)?;
        Ok(Arc::new(store.reading_into(Arc::new(self.room(kind)))))
    }

    /// What one request of the tenant's may use of the sandbox. What it did use is counted as the tenant's once it is over.
    pub(crate) fn allowance(&self) -> Arc<Allowance> {
        self.allowance_of(&Tensors::new(self.room(Kind::Grant)))
    }

    /// The same, of the memory that `tensors` lends.
    pub(crate) fn allowance_of(&self, tensors: &Arc<Tensors>) -> Arc<Allowance> {
        let (metrics, tenant) = (Arc::clone(self.metrics()), self.tenant().name.clone());
        let limits = self.tenant().allowed.limits();
        Allowance::with_memory(limits, Arc::clone(tensors) as _, move |usage| {
            metrics.used(&tenant, &usage);
        })
    }

    /// The lanes, for the extraction `id` on `terms`.
    pub(crate) fn lanes(&self, id: &str, terms: Terms) -> TenantLanes {
        let tenant = self.tenant();
        let extraction = id.into();
        tenant
            .executor
            .on_terms(tenant.allowed.weight(), RunTerms { extraction, terms })
    }

    /// Waits for the tenant's turn to list its data, which may read shards through.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn listing(&self) -> Result<Permit, Refusal> {
        let Tenant { name, allowed, .. } = self.tenant();
        self.scheduling().list(name, allowed.permits()).await
    }

    /// Waits for the tenant's turn to ask guests something outside of an extraction.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn asking(&self) -> Result<Permit, Refusal> {
        let Tenant { name, allowed, .. } = self.tenant();
        self.scheduling().ask(name, allowed.permits()).await
    }
}
