//! Starting and stopping a host.

mod assembly;
mod error;
mod sockets;
mod upkeep;

pub use error::StartError;

use crate::config::HostConfig;
use crate::http::{self, Port};
use crate::service::Service;
use crate::state::{compact, follow};
use crate::tls::Certificate;
use sockets::Listeners;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upkeep::{Refreshed, refresh, sweep};

/// How long connections may take to close once their work is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A storage host.
#[derive(Debug, Clone, Copy)]
pub struct Host;

/// A host that serves. Dropping it ends everything at once; [`shutdown`](Self::shutdown) is kinder.
pub struct RunningHost {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    encrypted: bool,
    token_file: PathBuf,
    service: Arc<Service>,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Host {
    /// Starts a host on the current tokio runtime. The port opens last, when everything else is known to work.
    ///
    /// # Errors
    /// [`StartError`], naming the file, device or address.
    pub async fn start(config: HostConfig) -> Result<RunningHost, StartError> {
        let certificate = config
            .tls
            .clone()
            .map(Certificate::read)
            .transpose()?
            .map(Arc::new);
        let tls = certificate.as_ref().map(Certificate::acceptor).transpose()?;
        check_data(&config).await?;
        let service = Arc::new(assembly::service(config).await?);
        // Whatever can fail comes before the first connection is taken: a port that is served outlives this function.
        let Listeners {
            tenants: (listener, address),
            admin,
            admin_socket,
            metrics,
        } = Listeners::open(&service.config).await?;
        let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
        let mut ports = vec![Port {
            listener,
            router: http::routes(Arc::clone(&service)),
            tls: tls.clone(),
            connections: service.config.limits.connections,
        }];
        let mut refreshed = Refreshed {
            certificate,
            admin_token: None,
        };
        let mut admin_address = None;
        if let Some((token, (listener, address))) = admin {
            refreshed.admin_token = Some(Arc::clone(&token));
            admin_address = Some(address);
            ports.push(Port {
                listener,
                router: http::remote_admin_routes(Arc::clone(&service), token),
                tls: tls.clone(),
                connections: http::ADMINS,
            });
        }
        let metrics_address = metrics.as_ref().map(|(_, address)| *address);
        if let Some((listener, _)) = metrics {
            ports.push(Port {
                listener,
                router: http::metrics_routes(Arc::clone(&service)),
                tls,
                connections: http::ADMINS,
            });
        }
        for port in ports {
            let serving = http::serve(port, Arc::clone(&service), stop.clone(), connections.clone());
            connections.spawn(serving);
        }
        connections.spawn(refresh(refreshed, stop.clone()));
        if let Some(listener) = admin_socket {
            let admin = http::serve_admin(
                listener,
                http::admin_routes(Arc::clone(&service)),
                service.config.limits.header_time,
                stop.clone(),
                connections.clone(),
            );
            connections.spawn(admin);
        }
        connections.spawn(sweep(service.library.partials.clone(), stop.clone()));
        connections.spawn(follow(Arc::clone(&service.library.journal), stop.clone()));
        connections.spawn(compact(Arc::clone(&service.library.journal), stop.clone()));
        let encrypted = service.config.tls.is_some();
        tracing::info!(%address, encrypted, device = %service.config.device, "serving");
        Ok(RunningHost {
            address,
            admin_address,
            metrics_address,
            encrypted,
            token_file: service.config.token_file.clone(),
            service,
            stop,
            connections,
        })
    }
}

/// Refuses folders with data that are not there: tenants would find nothing in them.
async fn check_data(config: &HostConfig) -> Result<(), StartError> {
    for path in config.data.folders() {
        let reason = match tokio::fs::metadata(&path).await {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => "it is no folder".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(StartError::Data { path, reason });
    }
    Ok(())
}

impl RunningHost {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, as clients are to be given it unless they know it by another name.
    pub fn url(&self) -> String {
        let scheme = if self.encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The URL for admins from afar, if they are listened to.
    pub fn admin_url(&self) -> Option<String> {
        self.admin_address.map(|address| format!("https://{address}"))
    }

    /// Where `/metrics` says what each tenant had, if anywhere.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// The file with the tenant's token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Stops: what is new or waits is refused with 503, what runs finishes, at the deadline everything ends. Where nothing runs that is at once.
    pub async fn shutdown(self, deadline: Duration) {
        let until = Instant::now() + deadline;
        self.service.scheduling.stop();
        self.service.scheduling.work.close();
        let finished = timeout_at(until, self.service.scheduling.work.wait())
            .await
            .is_ok();
        self.stop.cancel();
        self.connections.close();
        let closed = timeout_at(until.max(Instant::now() + LAST_WORDS), self.connections.wait())
            .await
            .is_ok();
        if !finished || !closed {
            tracing::warn!("some work did not finish before the deadline and was ended");
        }
        self.service.scheduling.end.cancel();
        self.connections.wait().await;
        // Uploads that were ended write down what they have.
        if timeout_at(Instant::now() + LAST_WORDS, self.service.scheduling.work.wait())
            .await
            .is_err()
        {
            tracing::warn!("some work did not end when it was told to");
        }
        let service = Arc::clone(&self.service);
        let lanes = tokio::task::spawn_blocking(move || service.machine.lanes.shutdown(LAST_WORDS));
        if lanes.await.is_err() {
            tracing::error!("the lanes did not shut down");
        }
        let service = Arc::clone(&self.service);
        if !matches!(
            tokio::task::spawn_blocking(move || service.operations.audit.flush()).await,
            Ok(Ok(()))
        ) {
            tracing::error!("not all of the audit could be written");
        }
    }
}

impl Drop for RunningHost {
    fn drop(&mut self) {
        self.stop.cancel();
        self.service.scheduling.stop();
        self.service.scheduling.end.cancel();
    }
}
