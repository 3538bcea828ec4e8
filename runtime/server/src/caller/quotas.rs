//! What a tenant may use of the host's memory, stores, lanes and time.

use super::Caller;
use crate::config::Root;
use crate::refusal::Refusal;
use crate::scheduling::{Permit, TenantMemory, TensorMemory};
use crate::state::StateError;
use crate::tenants::Tenant;
use frostline_batching::Kind;
use frostline_engine::TenantLanes;
use frostline_objects::{ReadRoom, Store};
use frostline_sandbox::Allowance;
use frostline_tensor::{BoxFuture, OpError, RunTerms, Terms};
use frostline_wire::QuotaKey;
use futures::FutureExt;
use prometheus_client::metrics::counter::Counter;
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

    /// Whether the tenant has anything left of what it may use in a day.
    ///
    /// # Errors
    /// [`Refusal::Budget`].
    pub(crate) fn check_budgets(&self) -> Result<(), Refusal> {
        let tenant = self.tenant();
        let today = self.service.operations.accounts.today_of(&tenant.name);
        for (key, used) in [
            (QuotaKey::DeviceSecondsPerDay, today.device_seconds as u64),
            (QuotaKey::BytesPerDay, today.sent_bytes),
        ] {
            let limit = tenant.allowed.get(key);
            if used >= limit {
                return Err(Refusal::Budget {
                    tenant: tenant.name.clone(),
                    key,
                    used,
                    limit,
                });
            }
        }
        Ok(())
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

    /// The store of a data root, if the tenant may read it. Its objects are read into memory of that kind, and counted as the tenant's.
    pub(crate) fn store(&self, root: &str, kind: Kind) -> Result<Arc<Store>, Refusal> {
        let parsed =
            Root::parse(root).map_err(|why| Refusal::request(format!("data root {root:?}: {why}")))?;
        let granted = self.tenant().data.find_grant(&parsed).ok_or_else(|| {
            Refusal::not_found(format!(
                "data root {root:?} is not granted to your tenant; the operator grants it by 'data' in the host's configuration or frostline admin tenant set"
            ))
        })?;
        let store = self.library().store(&self.tenant().name, granted, &parsed)?;
        let room = MeteredRoom {
            memory: self.memory(kind),
            read: self.metrics().read_bytes_of(&self.tenant().name),
        };
        Ok(Arc::new(store.reading_into(Arc::new(room))))
    }

    /// What one request of the tenant's may use of the sandbox. What it spends is counted as the tenant's as it is.
    pub(crate) fn allowance(&self) -> Arc<Allowance> {
        self.allowance_with(&TensorMemory::new(self.memory(Kind::Grant)))
    }

    /// The same, of the memory that `tensors` lends.
    pub(crate) fn allowance_with(&self, tensors: &Arc<TensorMemory>) -> Arc<Allowance> {
        let on_spent = self.metrics().on_spent(&self.tenant().name);
        let limits = self.tenant().allowed.limits();
        Allowance::with_memory(limits, Arc::clone(tensors) as _, on_spent)
    }

    /// The lanes, for the extraction `id` of a `job` on `terms`.
    pub(crate) fn lanes(&self, id: &str, job: &str, terms: Terms) -> TenantLanes {
        let tenant = self.tenant();
        let terms = RunTerms {
            extraction: id.into(),
            job: job.into(),
            terms,
        };
        tenant.executor.on_terms(tenant.allowed.weight(), terms)
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

/// A tenant's memory to read into, with what is counted that is read into it.
struct MeteredRoom {
    memory: TenantMemory,
    read: [Counter; 2],
}

impl ReadRoom for MeteredRoom {
    fn enter(&self, bytes: u64) -> BoxFuture<Result<Box<dyn Send + Sync>, OpError>> {
        let (entering, read) = (self.memory.enter(bytes), self.read.clone());
        async move {
            let guard = entering.await?;
            for counter in &read {
                counter.inc_by(bytes);
            }
            Ok(guard)
        }
        .boxed()
    }

    fn keep(&self, bytes: u64) -> Option<Box<dyn Send + Sync>> {
        self.memory.keep(bytes)
    }
}
