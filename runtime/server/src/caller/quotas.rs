//! A tenant's quotas, and access to the host's memory, stores, lanes and turns.

use super::Caller;
use crate::config::Root;
use crate::refusal::Refusal;
use crate::scheduling::{AdmissionPermit, MeteredRoom, TenantMemory, TensorMemory};
use crate::tenants::Tenant;
use frostline_batching::{Charge, Kind, Stop, run_blocking};
use frostline_engine::TenantLanes;
use frostline_images::DecodePool;
use frostline_objects::Store;
use frostline_sandbox::{Allowance, Limits};
use frostline_state::StateError;
use frostline_tensor::{ExecutionTerms, Terms, without_secrets};
use frostline_wire::{QuotaKey, UNLIMITED, Usage};
use std::sync::Arc;
use std::time::Duration;

/// Deadline of blocking work for a tenant. Parsing the largest models needs some seconds.
const BLOCKING_DEADLINE: Duration = Duration::from_secs(60);

impl Caller {
    /// Compares `requested` with the tenant's limit for `key`.
    ///
    /// # Errors
    /// Returns [`Refusal::Quota`] if the limit is exceeded.
    pub(crate) fn check_quota(&self, key: QuotaKey, requested: u64) -> Result<(), Refusal> {
        let limit = self.tenant().quota.get(key);
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

    /// Checks that no daily budget of the tenant is used up.
    ///
    /// # Errors
    /// Returns [`Refusal::Budget`] if a budget is used up.
    pub(crate) fn check_budgets(&self) -> Result<(), Refusal> {
        self.check_budget(QuotaKey::DeviceSecondsPerDay)?;
        self.check_budget(QuotaKey::BytesPerDay)?;
        self.check_budget(QuotaKey::ReadBytesPerDay)
    }

    /// Checks that the daily budget `key` of the tenant is not used up. Bytes are counted up to now on this host,
    /// device time up to two seconds ago.
    ///
    /// # Errors
    /// Returns [`Refusal::Budget`] if the budget is used up.
    pub(crate) fn check_budget(&self, key: QuotaKey) -> Result<(), Refusal> {
        let tenant = self.tenant();
        let limit = tenant.quota.get(key);
        if limit == UNLIMITED {
            return Ok(());
        }
        let counters = &self.metrics().tenants;
        let accounts = &self.service.operations.accounts;
        let today = accounts.today_of(&tenant.name, || counters.usage(&tenant.name));
        let used = budget_used(key, &today).unwrap_or(0);
        if used < limit {
            return Ok(());
        }
        counters.count_over_budget(&tenant.name);
        Err(Refusal::Budget {
            tenant: tenant.name.clone(),
            key,
            used,
            limit,
        })
    }

    /// Checks that the tenant can store `more` bytes of guests and models.
    ///
    /// # Errors
    /// Returns [`StateError::Full`] if the storage quota would be exceeded.
    pub(crate) fn check_stored_bytes(&self, more: u64) -> Result<(), StateError> {
        let stored = self.guests().bytes().saturating_add(self.models().bytes());
        let requested = stored.saturating_add(more);
        let limit = self.tenant().quota.get(QuotaKey::StoredBytes);
        if requested <= limit {
            return Ok(());
        }
        Err(StateError::Full {
            tenant: self.tenant().name.clone(),
            requested,
            limit,
        })
    }

    /// Checks that `more` bytes of model metadata can be kept in memory for the tenant.
    ///
    /// # Errors
    /// Returns [`StateError::Facts`] if the limit would be exceeded.
    pub(crate) fn check_metadata(&self, more: u64) -> Result<(), StateError> {
        let versions = self.models().names().into_iter().flat_map(|named| named.versions);
        let kept: u64 = versions.map(|version| version.facts.memory_bytes()).sum();
        let requested = kept.saturating_add(more);
        let limit = self.config().limits.facts_bytes;
        if requested <= limit {
            return Ok(());
        }
        Err(StateError::Facts {
            tenant: self.tenant().name.clone(),
            requested,
            limit,
        })
    }

    /// The host's memory of this kind, reserved on behalf of the tenant.
    pub(crate) fn memory(&self, kind: Kind) -> TenantMemory {
        TenantMemory::new(&self.scheduling().memory, &self.tenant().name, kind)
    }

    /// Returns the store of a data root. Objects are read into memory of the given kind, and the bytes read
    /// are counted for the tenant.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the root is invalid, is not granted to the tenant, or cannot be opened.
    pub(crate) fn store(&self, root: &str, kind: Kind) -> Result<Arc<Store>, Refusal> {
        let shown = without_secrets(root);
        let parsed =
            Root::parse(root).map_err(|why| Refusal::request(format!("data root {shown:?}: {why}")))?;
        let granted = self.tenant().data.find_grant(&parsed).ok_or_else(|| {
            Refusal::not_found(format!(
                "data root {shown:?} is not granted to your tenant; ask the operator to add it to 'data' in the host's configuration or to run frostline admin tenant set"
            ))
        })?;
        let store = self.library().store(&self.tenant().name, granted, &parsed)?;
        let room = MeteredRoom {
            memory: self.memory(kind),
            read: self.metrics().read_bytes_of(&self.tenant().name),
            charge: self.blocking_charge(),
        };
        Ok(Arc::new(store.reading_into(Arc::new(room))))
    }

    /// Returns the decoding threads, which the tenant pays for.
    pub(crate) fn decoders(&self) -> DecodePool {
        let name = &self.tenant().name;
        let charge = self.metrics().tenants.decoding_of(name);
        self.machine().decoders.for_tenant(name, charge)
    }

    /// Returns the account for blocking threads that work for the tenant.
    pub(crate) fn blocking_charge(&self) -> Charge {
        self.metrics().tenants.blocking_of(&self.tenant().name)
    }

    /// Runs blocking `work` on a thread that the tenant pays for. It ends when the request ends, and `permit` is
    /// released afterwards.
    ///
    /// # Errors
    /// Returns the error of `work`, [`Refusal::Deadline`] after a minute, and a refusal caused by the host if the
    /// work panicked.
    pub(crate) async fn run_blocking<T, E>(
        &self,
        permit: impl Send + 'static,
        work: impl FnOnce(&Stop) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        E: Into<Refusal> + Send + 'static,
    {
        let done = run_blocking(permit, BLOCKING_DEADLINE, self.blocking_charge(), work).await?;
        done.map_err(Into::into)
    }

    /// Returns the sandbox limits of a request. Consumption is added to the tenant's usage immediately.
    pub(crate) fn allowance(&self) -> Arc<Allowance> {
        self.allowance_with(&TensorMemory::new(self.memory(Kind::Grant)))
    }

    /// Like [`allowance`](Self::allowance), with memory from `tensors`.
    pub(crate) fn allowance_with(&self, tensors: &Arc<TensorMemory>) -> Arc<Allowance> {
        let on_spent = self.metrics().on_spent(&self.tenant().name);
        let limits = Limits {
            slice: Duration::from_secs(self.config().guests.slice_seconds),
            ..self.tenant().quota.limits()
        };
        Allowance::with_memory(limits, Arc::clone(tensors) as _, on_spent)
    }

    /// Returns the host's lanes for the extraction `id` of `job`, submitting with `terms`.
    pub(crate) fn lanes(&self, id: &str, job: &str, terms: Terms) -> TenantLanes {
        let tenant = self.tenant();
        let terms = ExecutionTerms {
            extraction: id.into(),
            job: job.into(),
            terms,
        };
        tenant.executor.on_terms(tenant.quota.weight(), terms)
    }

    /// Waits for the tenant's turn to list data, which can include reading whole shards.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if the queue is full, or [`Refusal::Stopping`] if the host stops.
    pub(crate) async fn listing_permit(&self) -> Result<AdmissionPermit, Refusal> {
        let Tenant { name, quota, .. } = self.tenant();
        let scheduling = self.scheduling();
        scheduling
            .enter(&scheduling.listings, name, quota.permits())
            .await
    }

    /// Waits for the tenant's turn to call a guest outside of an extraction.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if the queue is full, or [`Refusal::Stopping`] if the host stops.
    pub(crate) async fn description_permit(&self) -> Result<AdmissionPermit, Refusal> {
        let Tenant { name, quota, .. } = self.tenant();
        let scheduling = self.scheduling();
        scheduling
            .enter(&scheduling.descriptions, name, quota.permits())
            .await
    }
}

/// Returns the part of the usage of a day that the budget `key` limits, or `None` for other quotas.
pub(crate) fn budget_used(key: QuotaKey, today: &Usage) -> Option<u64> {
    match key {
        QuotaKey::DeviceSecondsPerDay => Some(today.device_seconds as u64),
        QuotaKey::BytesPerDay => Some(today.sent_bytes),
        QuotaKey::ReadBytesPerDay => Some(today.read_bytes),
        QuotaKey::Running
        | QuotaKey::Queued
        | QuotaKey::Weight
        | QuotaKey::Uploads
        | QuotaKey::StoredBytes
        | QuotaKey::WallSeconds
        | QuotaKey::CpuSeconds
        | QuotaKey::TensorBytes
        | QuotaKey::ObjectReads
        | QuotaKey::ObjectBytes
        | QuotaKey::OutputBytes
        | QuotaKey::LogBytes => None,
    }
}
