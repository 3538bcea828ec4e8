//! State shared by all request handlers.

use crate::accounting::Accounts;
use crate::audit::Audit;
use crate::clock::Clock;
use crate::config::HostConfig;
use crate::fleet::Fleet;
use crate::guest_logs::GuestLogs;
use crate::jobs::Jobs;
use crate::library::Library;
use crate::machine::Machine;
use crate::metrics::{Exposition, Metrics};
use crate::roots::RootHealth;
use crate::scheduling::Scheduling;
use crate::tenants::{Tenants, TokenThrottle};
use std::io;
use std::sync::Arc;
use tokio::task::spawn_blocking;

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
}

impl Service {
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
        let known = move |tenant: &str| service.tenants.record(tenant).is_some();
        self.library.partials.retain_tenants(known).await;
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
