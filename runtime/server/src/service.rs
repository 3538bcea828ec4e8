//! What the handlers of one host share.

use crate::accounting::Accounts;
use crate::audit::Audit;
use crate::config::HostConfig;
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

/// See the module.
pub(crate) struct Service {
    pub(crate) config: HostConfig,
    pub(crate) tenants: Tenants,
    /// Who tried bad tokens.
    pub(crate) throttle: TokenThrottle,
    pub(crate) library: Library,
    pub(crate) machine: Machine,
    pub(crate) scheduling: Scheduling,
    pub(crate) operations: Operations,
}

/// What whoever runs the host sees of it.
pub(crate) struct Operations {
    pub(crate) metrics: Arc<Metrics>,
    /// Which data roots answer.
    pub(crate) roots: Arc<RootHealth>,
    /// What `/metrics` shows of these.
    pub(crate) exposition: Exposition,
    /// What guests logged.
    pub(crate) lines: Arc<GuestLogs>,
    /// Who did what.
    pub(crate) audit: Audit,
    /// What they do.
    pub(crate) jobs: Arc<Jobs>,
    /// What tenants used.
    pub(crate) accounts: Accounts,
}

impl Service {
    /// Removes what this host keeps on its disk of guests, models and tenants that are not in the state any more.
    pub(crate) async fn prune(self: &Arc<Self>) {
        let service = Arc::clone(self);
        let pruned = spawn_blocking(move || service.prune_caches()).await;
        let pruned = pruned.unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = pruned {
            tracing::warn!(%error, "cannot remove files of removed guests and models; the next change of the state tries again");
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
