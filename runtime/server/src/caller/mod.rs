//! Who asks, and what of this host is there for them: all that tenants' requests see.

mod quotas;
mod uploads;

use crate::config::HostConfig;
use crate::guest_logs::{Owner, Source, since_1970};
use crate::jobs::Jobs;
use crate::library::Library;
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::scheduling::Scheduling;
use crate::service::Service;
use crate::tenants::{Pass, Tenant};
use frostline_sandbox::OnLogLine;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How often what runs is held against what is known of its tenant: who ends it waits a second.
const CHECK: Duration = Duration::from_secs(1);

/// A tenant at this host.
#[derive(Clone)]
pub(crate) struct Caller {
    service: Arc<Service>,
    pass: Pass,
    /// Where it asks from.
    address: IpAddr,
}

impl Caller {
    pub(crate) fn new(service: Arc<Service>, pass: Pass, address: IpAddr) -> Self {
        Self {
            service,
            pass,
            address,
        }
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.pass.tenant
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    pub(crate) fn config(&self) -> &HostConfig {
        &self.service.config
    }

    pub(crate) fn library(&self) -> &Library {
        &self.service.library
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.service.machine
    }

    pub(crate) fn scheduling(&self) -> &Scheduling {
        &self.service.scheduling
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.service.operations.metrics
    }

    pub(crate) fn jobs(&self) -> &Arc<Jobs> {
        &self.service.operations.jobs
    }

    /// Whether the tenant may still be here: its token was not revoked and has not expired, and it was neither disabled nor removed.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn check_access(&self) -> Result<(), Refusal> {
        let now = frostline_profile::now();
        Ok(self.service.tenants.check_valid(&self.pass, now)?)
    }

    /// Ends when `check` says that what runs for the tenant may not go on.
    pub(crate) async fn wait_until_refused(&self, check: impl Fn() -> Result<(), Refusal>) -> Refusal {
        loop {
            tokio::time::sleep(CHECK).await;
            if let Err(refusal) = check() {
                tracing::info!(%refusal, "request cancelled: it may not go on");
                return refusal;
            }
        }
    }

    /// Does `work` within the time that a request of the tenant's may take, and while the host runs.
    ///
    /// # Errors
    /// Its own, [`Refusal::Deadline`] and [`Refusal::Stopping`].
    pub(crate) async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let wall = self.tenant().allowed.wall();
        let seconds = wall.as_secs();
        tokio::select! {
            outcome = timeout(wall, work) => outcome.map_err(|_| Refusal::Deadline { seconds })?,
            () = self.scheduling().end.cancelled() => Err(Refusal::Stopping),
        }
    }

    /// Writes down what the tenant did.
    pub(crate) fn audit(&self, what: &str, detail: impl Into<String>) {
        let audit = &self.service.operations.audit;
        audit.tenant(&self.tenant().name, self.address, what, detail);
    }

    /// What keeps the lines that `guest` logs in the extraction `id`, for the tenant to read. Of many some go to the host's log.
    pub(crate) fn on_log_line(&self, guest: &str, id: &str) -> OnLogLine {
        let lines = Arc::clone(&self.service.operations.lines);
        let source = Source {
            owner: self.owner().clone(),
            guest: guest.into(),
            extraction: id.into(),
        };
        let tenant = Arc::clone(&self.pass.tenant);
        Arc::new(move |level, text| {
            lines.append(&source, level, text, since_1970());
            tenant.guest_lines.sample().is_some()
        })
    }

    /// Whose lines it reads.
    pub(crate) fn owner(&self) -> &Owner {
        &self.tenant().owner
    }
}
