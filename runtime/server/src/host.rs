//! Starting and stopping a host.

use crate::audit::Audit;
use crate::extraction::{Admission, GrantDesk};
use crate::http::Port;
use crate::metrics::Metrics;
use crate::service::Service;
use crate::stages::ModelStages;
use crate::state::{PartialLimits, Partials, SharedState, StateError, follow};
use crate::tenants::{Bouncer, Tenants};
use crate::tls::{Certificate, TlsError};
use crate::token::{AdminToken, TokenError, TokenHash};
use crate::{HostConfig, StatePlace, http};
use frostline_batching::{GrantRules, Grants};
use frostline_engine::{Device, EngineError, Lanes, LanesConfig, library_version};
use frostline_images::DecodePool;
use frostline_objects::{ObjectError, Store};
use frostline_profile::{Folder, machine};
use frostline_sandbox::{Sandbox, SandboxConfig, SandboxError};
use quick_cache::sync::Cache;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Data roots whose stores are kept open, with their connections.
const OPEN_STORES: usize = 64;

/// Guests kept ready to run; loading a compiled one again takes under a millisecond.
const PREPARED_GUESTS: usize = 64;

/// How often leftovers of uploads are looked through; they are at every upload too.
const SWEEP: Duration = Duration::from_secs(3600);

/// How often certificates and the admin's token are read again: whoever replaces one waits some seconds for it.
const REFRESH: Duration = Duration::from_secs(5);

/// How long connections may take to close once their work is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why a host did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory of the host cannot be used.
    #[error("the host's directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The state's store cannot be opened.
    #[error("the host's state: {source}")]
    StateStore {
        /// The store's error.
        source: ObjectError,
    },
    /// What lies in it cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The sandbox cannot run.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The engine cannot run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system gave no threads.
    #[error("no threads to decode images: {source}")]
    Threads {
        /// The system's error.
        source: std::io::Error,
    },
    /// The admin's socket cannot be made.
    #[error("the admin's socket {}: {source}", path.display())]
    AdminSocket {
        /// The socket's file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A storage host.
#[derive(Debug, Clone, Copy)]
pub struct Host;

/// A host that serves. Dropping it ends everything at once; [`shutdown`](Self::shutdown) is kinder.
pub struct RunningHost {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
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
        let service = Arc::new(service(config).await?);
        let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
        let (listener, address) = bind(service.config.listen).await?;
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
        if let Some(listen) = service.config.admin_listen {
            let token = AdminToken::read_or_create(service.config.admin_token_file.clone())?;
            let token = Arc::new(token);
            refreshed.admin_token = Some(Arc::clone(&token));
            let (listener, address) = bind(listen).await?;
            admin_address = Some(address);
            ports.push(Port {
                listener,
                router: http::remote_admin_routes(Arc::clone(&service), token),
                tls,
                connections: http::ADMINS,
            });
        }
        for port in ports {
            let serving = http::serve(port, Arc::clone(&service), stop.clone(), connections.clone());
            connections.spawn(serving);
        }
        connections.spawn(refresh(refreshed, stop.clone()));
        if let Some(path) = &service.config.admin_socket {
            let socket = |source| StartError::AdminSocket {
                path: path.clone(),
                source,
            };
            let admin = http::serve_admin(
                admin_listener(path).map_err(socket)?,
                http::admin_routes(Arc::clone(&service)),
                service.config.limits.header_time,
                stop.clone(),
                connections.clone(),
            );
            connections.spawn(admin);
        }
        connections.spawn(sweep(service.partials.clone(), stop.clone()));
        let (state, stopped) = (Arc::clone(&service.state), stop.clone());
        connections.spawn(async move { follow(&state, stopped).await });
        let encrypted = service.config.tls.is_some();
        tracing::info!(%address, encrypted, device = %service.config.device, "serving");
        Ok(RunningHost {
            address,
            admin_address,
            encrypted,
            token_file: service.config.token_file.clone(),
            service,
            stop,
            connections,
        })
    }
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

    /// The file with the tenant's token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Stops: new and waiting extractions are refused with 503, running ones finish, at the deadline everything ends.
    pub async fn shutdown(self, deadline: Duration) {
        let until = Instant::now() + deadline;
        self.service.admission.stop();
        self.service.work.close();
        let finished = timeout_at(until, self.service.work.wait()).await.is_ok();
        self.stop.cancel();
        self.connections.close();
        let closed = timeout_at(until.max(Instant::now() + LAST_WORDS), self.connections.wait())
            .await
            .is_ok();
        if !finished || !closed {
            tracing::warn!("some work did not finish before the deadline and was ended");
        }
        self.service.end.cancel();
        self.connections.wait().await;
        // Uploads that were ended write down what they have.
        if timeout_at(Instant::now() + LAST_WORDS, self.service.work.wait())
            .await
            .is_err()
        {
            tracing::warn!("some work did not end when it was told to");
        }
        let service = Arc::clone(&self.service);
        let lanes = tokio::task::spawn_blocking(move || service.lanes.shutdown(LAST_WORDS));
        if lanes.await.is_err() {
            tracing::error!("the lanes did not shut down");
        }
    }
}

impl Drop for RunningHost {
    fn drop(&mut self) {
        self.stop.cancel();
        self.service.admission.stop();
        self.service.end.cancel();
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    Ok((listener, address))
}

/// A socket that only its owner may use. It is made in a folder of its own and moved to its place when its permissions are right.
fn admin_listener(path: &Path) -> std::io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::AddrInUse,
            "another host answers there; give each a local directory of its own",
        ));
    }
    let private = tempfile::Builder::new().prefix(".admin").tempdir_in(folder)?;
    let made = private.path().join("s");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    std::fs::rename(&made, path)?;
    Ok(listener)
}

/// What is read again when its files change.
struct Refreshed {
    certificate: Option<Arc<Certificate>>,
    admin_token: Option<Arc<AdminToken>>,
}

impl Refreshed {
    /// What cannot be read leaves what was.
    fn refresh(&self) {
        match self.certificate.as_ref().map(|certificate| certificate.refresh()) {
            Some(Ok(true)) => tracing::info!("the host shows another certificate from now on"),
            Some(Err(error)) => tracing::warn!(%error, "the host goes on with the certificate it has"),
            _ => {}
        }
        match self.admin_token.as_ref().map(|token| token.refresh()) {
            Some(Ok(true)) => tracing::info!("the admin's token is another from now on"),
            Some(Err(error)) => tracing::warn!(%error, "the host goes on with the admin's token it has"),
            _ => {}
        }
    }
}

/// Reads again what may have changed from time to time, until `stop`.
async fn refresh(refreshed: Refreshed, stop: CancellationToken) {
    let refreshed = Arc::new(refreshed);
    while tokio::time::timeout(REFRESH, stop.cancelled()).await.is_err() {
        let refreshed = Arc::clone(&refreshed);
        if tokio::task::spawn_blocking(move || refreshed.refresh())
            .await
            .is_err()
        {
            tracing::error!("certificates and tokens could not be read again");
        }
    }
}

/// Removes leftovers of uploads from time to time, until `stop`.
async fn sweep(partials: Partials, stop: CancellationToken) {
    while tokio::time::timeout(SWEEP, stop.cancelled()).await.is_err() {
        partials.sweep().await;
    }
}

/// What may be kept of uploads that broke off.
fn partials(config: &HostConfig) -> Result<Partials, StartError> {
    let limits = PartialLimits {
        number: config.limits.partials,
        bytes: config.limits.partial_bytes,
        age: config.limits.partial_age,
    };
    let folder = config.local.join("partials");
    Partials::open(folder.clone(), limits).map_err(|source| StartError::Directory { path: folder, source })
}

fn audit(config: &HostConfig) -> Result<Audit, StartError> {
    Audit::open(&config.local).map_err(|source| StartError::Directory {
        path: config.local.clone(),
        source,
    })
}

async fn service(config: HostConfig) -> Result<Service, StartError> {
    let token = TokenHash::read_or_create(&config.token_file)?;
    let limits = config.limits;
    let state = Arc::new(SharedState::open(state_store(&config.state)?, &limits).await?);
    let sandbox = Sandbox::new(SandboxConfig {
        artefacts: Some(config.local.join("artefacts")),
        upload_bytes: usize::try_from(limits.guest_bytes).unwrap_or(usize::MAX),
        compiler: config.compiler.clone(),
        ..SandboxConfig::default()
    })?;
    let lanes = LanesConfig {
        lanes: config.lanes,
        threads_per_lane: config.threads_per_lane,
        place: config.lanes_place.clone(),
        ..LanesConfig::for_device(config.device)
    };
    let stages = ModelStages::new(Arc::clone(&state.models), limits.stage_bytes, Handle::current());
    let lanes = Arc::new(Lanes::start(lanes, Arc::new(stages))?);
    let gpu = match config.device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(index),
    };
    let work = TaskTracker::new();
    let rules = GrantRules {
        samples: config.grant,
        ..GrantRules::default()
    };
    Ok(Service {
        tenants: Tenants::new(token, &config, Arc::clone(&state.tenants), Arc::clone(&lanes)),
        bouncer: Bouncer::new(),
        state,
        sandbox,
        lanes,
        decoders: DecodePool::start(config.decode_threads)
            .map_err(|source| StartError::Threads { source })?,
        stores: Cache::new(OPEN_STORES),
        prepared: Cache::new(PREPARED_GUESTS),
        descriptions: Cache::new(limits.descriptions),
        admission: Admission::new(config.running, config.queued, work.clone()),
        desk: GrantDesk::new(
            Grants::new(rules),
            config.grant.saturating_mul(config.running.max(config.calls)),
        ),
        profiles: Folder::new(config.local.join("profiles")),
        profiling: tokio::sync::Mutex::new(()),
        library: format!("onnxruntime {}", library_version()?),
        machine: machine(gpu),
        partials: partials(&config)?,
        uploads: Arc::new(Semaphore::new(http::upload_units(limits.upload_bytes) as usize)),
        metrics: Arc::new(Metrics::default()),
        audit: audit(&config)?,
        work,
        end: CancellationToken::new(),
        config,
    })
}

fn state_store(place: &StatePlace) -> Result<Arc<Store>, StartError> {
    let url = match place {
        StatePlace::Store(url) => url.clone(),
        StatePlace::Directory(path) => {
            let directory = |source| StartError::Directory {
                path: path.clone(),
                source,
            };
            std::fs::create_dir_all(path).map_err(directory)?;
            let path = std::fs::canonicalize(path).map_err(directory)?;
            let url = url::Url::from_directory_path(&path)
                .map_err(|()| directory(std::io::ErrorKind::InvalidInput.into()))?;
            url.into()
        }
    };
    let store = Store::open(&url).map_err(|source| StartError::StateStore { source })?;
    Ok(Arc::new(store))
}
