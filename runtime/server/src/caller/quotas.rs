//! What a tenant may use of the host's memory, stores, lanes and time.

use super::Caller;
use crate::config::Root;
use crate::refusal::Refusal;
use crate::scheduling::{Permit, TenantMemory, TensorMemory};
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
    /// Holds `requested` of something against what the tenant may use.
    ///
    /// # Errors
    /// [`Refusal::Quota`].
    pub(crate) fn check_quota(&self, key: QuotaKey, requested: u64) -> Result<(), Refusal> {
        let limit = self.tenant().allowed.get(key);
        if requested <= limit {
            return Ok(());
        }
        Err(Refusal::Quota {
            tenant: self.tenant().name.clone(),
            key,
            requested,
            limit,
        })
    }

    /// Whether `more` bytes may be stored beside what the tenant has.
    ///
    /// # Errors
    /// [`StateError::Full`].
    pub(crate) fn check_stored_bytes(&self, more: u64) -> Result<(), StateError> {
        let stored = self.guests().bytes().saturating_add(self.models().bytes());
        let (requested, limit) = (
            stored.saturating_add(more),
            self.tenant().allowed.get(QuotaKey::StoredBytes),
        );
        if requested <= limit {
            return Ok(());
        }
        Err(StateError::Full {
            tenant: self.tenant().name.clone(),
            requested,
            limit,
        })
    }

    /// Whether `more` bytes of what is known of models may be kept in memory beside those of the tenant's.
    ///
    /// # Errors
    /// [`StateError::Facts`].
    pub(crate) fn check_metadata(&self, more: u64) -> Result<(), StateError> {
        let versions = self.models().names().into_iter().flat_map(|named| named.versions);
        let kept: u64 = versions.map(|version| version.facts.memory_bytes()).sum();
        let (requested, limit) = (kept.saturating_add(more), self.config().limits.facts_bytes);
        if requested <= limit {
            return Ok(());
        }
        Err(StateError::Facts {
            tenant: self.tenant().name.clone(),
            requested,
            limit,
        })
    }

    /// The host's memory of one kind, for the tenant.
    pub(crate) fn memory(&self, kind: Kind) -> TenantMemory {
        TenantMemory::new(&self.scheduling().memory, &self.tenant().name, kind)
    }

    /// The store of a data root, if the tenant may read it. Its objects are read into memory of that kind.
    pub(crate) fn store(&self, root: &str, kind: Kind) -> Result<Arc<Store>, Refusal> {
        let parsed =
            Root::parse(root).map_err(|why| Refusal::request(format!("data root {root:?}: {why}")))?;
        let granted = self.tenant().data.find_grant(&parsed).ok_or_else(|| {
            Refusal::not_found(format!(
                "data root {root:?} is not granted to your tenant; the operator grants it by 'data' in the host's configuration or frostline admin tenant set"
            ))
        })?;
        let store = self.library().store(&self.tenant().name, granted, &parsed)?;
        Ok(Arc::new(store.reading_into(Arc::new(self.memory(kind)))))
    }

    /// What one request of the tenant's may use of the sandbox. What it did use is counted as the tenant's once it is over.
    pub(crate) fn allowance(&self) -> Arc<Allowance> {
        self.allowance_with(&TensorMemory::new(self.memory(Kind::Grant)))
    }

    /// The same, of the memory that `tensors` lends.
    pub(crate) fn allowance_with(&self, tensors: &Arc<TensorMemory>) -> Arc<Allowance> {
        let (metrics, tenant) = (Arc::clone(self.metrics()), self.tenant().name.clone());
        let limits = self.tenant().allowed.limits();
        Allowance::with_memory(limits, Arc::clone(tensors) as _, move |usage| {
            metrics.count_usage(&tenant, &usage);
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
    pub(crate) async fn listing_permit(&self) -> Result<Permit, Refusal> {
        let Tenant { name, allowed, .. } = self.tenant();
        self.scheduling().listing_permit(name, allowed.permits()).await
    }

    /// Waits for the tenant's turn to ask guests something outside of an extraction.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and [`Refusal::Stopping`].
    pub(crate) async fn description_permit(&self) -> Result<Permit, Refusal> {
        let Tenant { name, allowed, .. } = self.tenant();
        self.scheduling()
            .description_permit(name, allowed.permits())
            .await
    }
}
