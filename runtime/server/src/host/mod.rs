//! Starts and stops a host.

mod assembly;
mod error;
mod probe_config;
mod reload;
mod sockets;
mod state_copies;
mod upkeep;

pub use error::StartError;
pub use probe_config::{ProbeResult, check_start, probe_config};
pub use state_copies::{back_up_state, restore_state, verify_state};

use crate::accounting::counters;
use crate::config::{HostConfig, HostSettings};
use crate::fleet::{keep_fleet, settle_revocations};
use crate::http::{self, Port, RemoteAdmins};
use crate::scheduling::BaseMemory;
use crate::service::Service;
use crate::tls::{Certificate, TlsError};
use crate::token::TokenFile;
use frostline_batching::Kind;
use frostline_engine::LanesPlace;
use parking_lot::Mutex;
use sockets::Listeners;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upkeep::{Refreshed, measure_disks, probe_roots, prune, refresh, sweep};

/// Memory that must be available for grants: 16 photos as pixels, and the same amount for activations.
const MIN_GRANT_BYTES: u64 = 20 << 20;

/// Time limit for closing connections after the work is done.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A storage host.
#[derive(Debug, Clone, Copy)]
pub struct Host;

/// A running host. Dropping it cancels all work immediately; use [`shutdown`](Self::shutdown) to finish
/// running work first.
pub struct RunningHost {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    encrypted: bool,
    token_file: PathBuf,
    service: Arc<Service>,
    /// Remote admins, if `admin_listen` is set.
    admins: Option<RemoteAdmins>,
    /// Settings in use.
    written: Mutex<HostSettings>,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Host {
    /// Starts a host on the current tokio runtime. The port for tenants is only opened if everything else
    /// succeeded.
    ///
    /// # Errors
    /// Returns a [`StartError`] that names the file, device or address if the host cannot start.
    pub async fn start(config: HostConfig) -> Result<RunningHost, StartError> {
        let certificate = config.tls.clone().map(Certificate::read).transpose()?;
        let certificate = certificate.map(Arc::new);
        let tls = acceptor(certificate.as_ref(), None)?;
        let admin_tls = acceptor(certificate.as_ref(), config.admin_client_ca.as_deref())?;
        check_data(&config).await?;
        assembly::make_folders(&config)?;
        let token = Arc::new(TokenFile::read_or_create(config.token_file.clone())?);
        let service = assembly::service(config, Arc::clone(&token), certificate.clone()).await?;
        let service = Arc::new(service);
        let base = base(&service)?;
        // Everything that can fail must happen before the first connection is accepted, because a port that
        // is being served outlives this function.
        let listeners = Listeners::open(&service.config).await?;
        let host = RunningHost {
            address: listeners.tenants.1,
            admin_address: listeners.admin.as_ref().map(|(_, bound)| bound.1),
            metrics_address: listeners.metrics.as_ref().map(|bound| bound.1),
            encrypted: tls.is_some(),
            token_file: service.config.token_file.clone(),
            written: service.config.written.clone().into(),
            admins: listeners.admin.as_ref().map(|(admins, _)| admins.clone()),
            service,
            stop: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        let admins = host.admins.clone();
        host.serve(listeners, tls, admin_tls);
        let refreshed = Refreshed {
            certificate,
            token,
            admins,
        };
        host.start_upkeep(refreshed, base);
        let RunningHost {
            address, encrypted, ..
        } = &host;
        let config = &host.service.config;
        let device = config.device;
        let memory_budget = config.memory_budget;
        tracing::info!(%address, encrypted, %device, memory_budget, "serving");
        if !config.lowered_limits.is_empty() {
            let lowered = config.lowered_limits.join(", ");
            tracing::info!(lowered, "limits were lowered to fit memory_budget");
        }
        Ok(host)
    }
}

/// Measures the memory that this process uses before the first request. Returns `None` if lanes run in this
/// process, because it is not possible to tell their memory apart.
///
/// # Errors
/// Returns [`StartError::Memory`] if the budget does not leave enough room for a grant.
fn base(service: &Service) -> Result<Option<BaseMemory>, StartError> {
    if matches!(service.config.lanes_place, LanesPlace::InProcess) {
        return Ok(None);
    }
    let memory = &service.scheduling.memory;
    let base = BaseMemory::new(memory.clone());
    let (room, base_bytes) = memory.read(|ledger| (ledger.room(Kind::Grant), ledger.base()));
    if room < MIN_GRANT_BYTES {
        return Err(StartError::Memory {
            budget: service.config.memory_budget,
            needed: service.config.memory_budget - room + MIN_GRANT_BYTES,
            base: base_bytes,
        });
    }
    Ok(Some(base))
}

/// Refuses to start if a data folder is missing, because tenants would find no data.
async fn check_data(config: &HostConfig) -> Result<(), StartError> {
    for path in config.live.get().data.folders() {
        let reason = match tokio::fs::metadata(&path).await {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => "not a folder".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(StartError::Data { path, reason });
    }
    Ok(())
}

fn acceptor(
    certificate: Option<&Arc<Certificate>>,
    client_ca: Option<&Path>,
) -> Result<Option<TlsAcceptor>, TlsError> {
    certificate
        .map(|certificate| certificate.acceptor(client_ca))
        .transpose()
}

impl RunningHost {
    /// Starts serving requests on all sockets.
    fn serve(&self, listeners: Listeners, tls: Option<TlsAcceptor>, admin_tls: Option<TlsAcceptor>) {
        let limits = &self.service.config.limits;
        self.serve_port(Port {
            listener: listeners.tenants.0,
            router: http::tenant_routes(Arc::clone(&self.service)),
            tls: tls.clone(),
            connections: limits.connections,
        });
        if let Some((admins, bound)) = listeners.admin {
            self.serve_port(Port {
                listener: bound.0,
                router: http::remote_admin_routes(Arc::clone(&self.service), admins),
                tls: admin_tls,
                connections: http::MAX_ADMIN_CONNECTIONS,
            });
        }
        if let Some(bound) = listeners.metrics {
            let plain = self
                .service
                .config
                .metrics_listen
                .is_some_and(|listen| listen.plain);
            self.serve_port(Port {
                listener: bound.0,
                router: http::metrics_routes(Arc::clone(&self.service)),
                tls: tls.filter(|_| !plain),
                connections: http::MAX_ADMIN_CONNECTIONS,
            });
        }
        if let Some(listener) = listeners.admin_socket {
            let stop = self.stop.clone();
            let connections = self.connections.clone();
            let routes = http::admin_routes(Arc::clone(&self.service));
            let serving = http::serve_admin(listener, routes, *limits, stop, connections);
            self.connections.spawn(serving);
        }
    }

    fn serve_port(&self, port: Port) {
        let service = Arc::clone(&self.service);
        let serving = http::serve(port, service, self.stop.clone(), self.connections.clone());
        self.connections.spawn(serving);
    }

    /// Starts the background tasks.
    fn start_upkeep(&self, refreshed: Refreshed, base: Option<BaseMemory>) {
        if let Some(base) = base {
            let evicting = Arc::clone(&self.service);
            self.keep(move |service, stop| {
                let of_lanes = move || service.machine.lanes.unreserved_bytes();
                base.watch(stop, of_lanes, move || evicting.library.clear_caches())
            });
        }
        let url = self.url();
        self.keep(|_, stop| refresh(refreshed, stop));
        self.keep(|service, stop| keep_fleet(service, url, stop));
        self.keep(settle_revocations);
        self.keep(|service, stop| async move {
            let accounts = &service.operations.accounts;
            accounts.keep(|| counters(&service), stop).await
        });
        self.keep(|service, stop| async move { service.operations.audit.keep(stop).await });
        self.keep(probe_roots);
        self.keep(measure_disks);
        self.keep(sweep);
        self.keep(prune);
        self.keep(|service, stop| async move { service.library.journal.follow(stop).await });
        self.keep(|service, stop| async move { service.library.journal.keep_compact(stop).await });
    }

    /// Starts a background task that ends when the host stops.
    fn keep<F: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce(Arc<Service>, CancellationToken) -> F,
    ) {
        let task = task(Arc::clone(&self.service), self.stop.clone());
        self.connections.spawn(task);
    }

    /// Returns the address for tenants.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for tenants, with the address the host listens on. Clients might know the host by
    /// another name.
    pub fn url(&self) -> String {
        let scheme = if self.encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the URL of the admin port, if enabled.
    pub fn admin_url(&self) -> Option<String> {
        self.admin_address.map(|address| format!("https://{address}"))
    }

    /// Returns the address of the separate port for `/metrics`, if enabled.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Returns the path of the configured tenant's token file.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Stops the host. New and queued requests are refused with 503 and running ones can finish until
    /// `deadline`; then everything is cancelled. This returns immediately if nothing is running.
    pub async fn shutdown(self, deadline: Duration) {
        let until = Instant::now() + deadline;
        let standing = self.service.scheduling.extractions.counts();
        let running = standing.running;
        let queued = standing.queued;
        let drain_seconds = deadline.as_secs();
        tracing::info!(
            running,
            queued,
            drain_seconds,
            "shutting down: new work is refused"
        );
        self.service.scheduling.stop();
        self.service.scheduling.work.close();
        let finished = timeout_at(until, self.service.scheduling.work.wait())
            .await
            .is_ok();
        self.stop.cancel();
        self.connections.close();
        let closed = timeout_at(until.max(Instant::now() + CLOSE_TIMEOUT), self.connections.wait())
            .await
            .is_ok();
        if !finished || !closed {
            tracing::warn!("drain deadline exceeded: the remaining work was cancelled");
        }
        self.service.scheduling.end.cancel();
        self.connections.wait().await;
        // Cancelled uploads still have to write the received bytes to disk.
        if timeout_at(
            Instant::now() + CLOSE_TIMEOUT,
            self.service.scheduling.work.wait(),
        )
        .await
        .is_err()
        {
            tracing::warn!("some work did not stop after cancellation");
        }
        let lanes = Arc::clone(&self.service.machine.lanes);
        #[expect(clippy::disallowed_methods, reason = "internal work, bounded by the host")]
        let closed = spawn_blocking(move || lanes.shutdown(CLOSE_TIMEOUT));
        if closed.await.is_err() {
            tracing::error!("cannot shut down the lanes because the task panicked");
        }
        if let Err(error) = self.service.operations.audit.write().await {
            tracing::error!(
                error = error.to_string(),
                "the last audit entries are lost because they could not be written to the state"
            );
        }
        tracing::info!("stopped");
    }
}

impl Drop for RunningHost {
    fn drop(&mut self) {
        self.stop.cancel();
        self.service.scheduling.stop();
        self.service.scheduling.end.cancel();
    }
}
