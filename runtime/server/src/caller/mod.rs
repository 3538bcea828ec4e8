//! The tenant that sent a request, and the parts of the host this tenant can use.

mod quotas;
mod uploads;

pub(crate) use quotas::budget_used;

use crate::config::HostConfig;
use crate::guest_logs::{LogOrigin, Owner, since_1970};
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

/// Interval at which running requests are checked. A request ends within this time if its tenant is disabled
/// or its token is revoked.
const CHECK: Duration = Duration::from_secs(1);

/// An authenticated tenant on this host.
#[derive(Clone)]
pub(crate) struct Caller {
    service: Arc<Service>,
    pass: Pass,
    /// Address of the client.
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

    /// Checks that the request can continue: the token was not revoked and has not expired, and the tenant
    /// was neither disabled nor removed.
    ///
    /// # Errors
    /// Returns a [`Refusal`] with the reason if it cannot.
    pub(crate) fn check_access(&self) -> Result<(), Refusal> {
        let now = self.service.clock.earliest();
        Ok(self.service.tenants.check_valid(&self.pass, now)?)
    }

    /// Checks that no admin cancelled the tenant's job with this id.
    ///
    /// # Errors
    /// Returns [`Refusal::Cancelled`] if it was cancelled.
    pub(crate) fn check_job(&self, id: &str) -> Result<(), Refusal> {
        self.service.fleet.cancellations.check(&self.tenant().name, id)
    }

    /// Returns the remaining lifetime of the token in seconds, or `None` if it does not expire.
    pub(crate) fn token_seconds(&self) -> Option<u64> {
        let expires_at = self.service.tenants.expires_at(&self.pass)?;
        Some(expires_at.saturating_sub(self.service.clock.latest()))
    }

    /// Calls `check` every second until the first refusal.
    pub(crate) async fn wait_until_refused(&self, check: impl Fn() -> Result<(), Refusal>) -> Refusal {
        loop {
            tokio::time::sleep(CHECK).await;
            if let Err(refusal) = check() {
                tracing::info!(%refusal, "request cancelled because it is no longer allowed");
                return refusal;
            }
        }
    }

    /// Runs `work` with the wall-clock limit of the tenant, and cancels it if the host stops.
    ///
    /// # Errors
    /// Returns the error of `work`, [`Refusal::Deadline`] if the time limit is exceeded, or
    /// [`Refusal::Stopping`] if the host stops.
    pub(crate) async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let wall = self.tenant().quota.wall();
        let seconds = wall.as_secs();
        tokio::select! {
            outcome = timeout(wall, work) => outcome.map_err(|_| Refusal::Deadline { seconds })?,
            () = self.scheduling().end.cancelled() => Err(Refusal::Stopping),
        }
    }

    /// Records an action of the tenant in the audit log.
    pub(crate) fn audit(&self, what: &str, detail: impl Into<String>) {
        let audit = &self.service.operations.audit;
        audit.tenant(&self.tenant().name, self.address, what, detail);
    }

    /// Returns the callback for lines that `guest` logs in the extraction `id`. It stores them for the
    /// tenant, and returns true if a line should also be written to the host's log.
    pub(crate) fn on_log_line(&self, guest: &str, id: &str) -> OnLogLine {
        let lines = Arc::clone(&self.service.operations.lines);
        let source = LogOrigin {
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

    /// Identifies the tenant in guest logs.
    pub(crate) fn owner(&self) -> &Owner {
        &self.tenant().owner
    }
}
