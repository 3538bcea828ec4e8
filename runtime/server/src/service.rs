//! State shared by all request handlers.

use crate::config::HostConfig;
use crate::fleet::Fleet;
use crate::guest_logs::GuestLogs;
use crate::jobs::Jobs;
use crate::library::Library;
use crate::machine::Machine;
use crate::metrics::{Exposition, HostSnapshot, MemorySnapshot, Metrics};
use crate::roots::RootHealth;
use crate::scheduling::Scheduling;
use crate::tenants::{Tenants, TokenThrottle};
use crate::tls::Certificate;
use frostline_state::{Accounts, Audit, Clock, StateError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Time between the end of the period in which a removed tenant can be restored, and the deletion. The clocks of hosts
/// with the same state may differ by a minute.
const ERASED_AFTER: Duration = Duration::from_secs(600);

/// Shared state of the request handlers.
pub(crate) struct Service {
    pub(crate) config: HostConfig,
    pub(crate) clock: Arc<Clock>,
    pub(crate) tenants: Tenants,
    /// Counts invalid tokens by address.
    pub(crate) throttle: TokenThrottle,
    pub(crate) library: Library,
    pub(crate) machine: Machine,
    pub(crate) scheduling: Scheduling,
    pub(crate) operations: Operations,
    /// The hosts that share the state.
    pub(crate) fleet: Fleet,
}

/// Metrics, logs and records for the operator of the host.
pub(crate) struct Operations {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) roots: Arc<RootHealth>,
    /// Renders `/metrics`.
    pub(crate) exposition: Exposition,
    /// Lines that guests logged.
    pub(crate) lines: Arc<GuestLogs>,
    pub(crate) audit: Audit,
    /// Jobs seen in the last day.
    pub(crate) jobs: Arc<Jobs>,
    /// Usage by tenant.
    pub(crate) accounts: Accounts,
    /// Certificate of the host, if it uses TLS.
    pub(crate) certificate: Option<Arc<Certificate>>,
}

impl Service {
    /// Takes a snapshot of the host for the metrics.
    pub(crate) fn snapshot(&self) -> HostSnapshot {
        let standing = self.scheduling.extractions.counts();
        let tenants = self.tenants.records.list("").into_iter();
        let token_expiry = tenants.filter_map(|(name, record)| Some((name, record.expires_at()?)));
        let certificate = self.operations.certificate.as_ref();
        HostSnapshot {
            queued: standing.queued,
            running: standing.running,
            lanes: self.machine.lanes.stats(),
            memory: MemorySnapshot::read(&self.scheduling.memory),
            decode_threads: self.machine.decoders.threads(),
            state_age: self.library.journal.age(),
            clock_skew: self.clock.check().skew(),
            revocations: self.tenants.revocations.pending().len(),
            roots_up: self.operations.roots.availability(),
            token_expiry: token_expiry.collect(),
            certificate_expiry: certificate.and_then(|certificate| certificate.expires_at()),
        }
    }

    /// Deletes a removed tenant with all guests, models and tokens. Uploads are deleted first, so that a new tenant
    /// with the same name can never find them.
    pub(crate) async fn erase_tenant(&self, name: &str) -> Result<(), StateError> {
        let guests = self.library.guests.owned_by(name);
        for (guest, _) in guests.list() {
            guests.delete(&guest).await?;
        }
        let models = self.library.models.owned_by(name);
        for (model, _) in models.list() {
            models.delete(&model).await?;
        }
        self.operations.lines.forget(name);
        // Another host may have erased it, and an admin may have added a new tenant since.
        let removed = self.tenants.records.update(name, |now| {
            let new = now.filter(|record| record.kept_until.is_none());
            Ok::<_, StateError>(new.cloned())
        });
        removed.await.map(drop)
    }

    /// Deletes the removed tenants that can no longer be restored, unless the clock differs from others.
    pub(crate) async fn erase_expired_tenants(&self) {
        if !self.clock.may_expire() {
            return;
        }
        let now = self.clock.earliest();
        for (name, record) in self.tenants.records.list("") {
            if record
                .kept_until
                .is_none_or(|until| now < until.saturating_add(ERASED_AFTER.as_secs()))
            {
                continue;
            }
            match self.erase_tenant(&name).await {
                Ok(()) => tracing::info!(tenant = name, "erased a removed tenant"),
                Err(error) => {
                    tracing::warn!(tenant = name, %error, "cannot erase a removed tenant; the host retries within a minute")
                }
            }
        }
    }

    /// Deletes cached guests, prepared stages and interrupted uploads whose guest, model or tenant was
    /// removed from the state.
    #[expect(clippy::disallowed_methods, reason = "internal work, bounded by the host")]
    pub(crate) async fn prune(self: &Arc<Self>) {
        let service = Arc::clone(self);
        let pruned = spawn_blocking(move || service.prune_caches()).await;
        let pruned = pruned.unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = pruned {
            tracing::warn!(%error, "cannot delete the cached files of removed guests and models; the host retries after the next change of the state");
        }
        let service = Arc::clone(self);
        self.library
            .partials
            .retain_tenants(move |tenant| service.tenants.record(tenant).is_some())
            .await;
    }

    fn prune_caches(&self) -> io::Result<()> {
        let guests = self.library.guests.all_names();
        let versions = guests.iter().flat_map(|guest| {
            let hashes = guest.versions.iter().map(|version| version.sha256.as_str());
            hashes.map(|sha256| (guest.owner.as_str(), sha256))
        });
        self.library.sandbox.retain(versions)?;
        let models = &self.library.models;
        let lanes = &self.machine.lanes;
        lanes.retain_models(|sha256| models.find_by_hash(sha256).is_some())
    }
}
