use super::error::ConfigError;
use super::limits::Limits;
use super::live::Live;
use super::networks::Networks;
use super::settings::{GuestSettings, HostSettings, TlsFiles};
use frostline_engine::{Device, LanesPlace};
use frostline_sandbox::Compiler;
use frostline_state::LocalClock;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Location of the shared state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateLocation {
    /// A directory.
    Directory(PathBuf),
    /// An object store URL.
    Store(String),
}

impl StateLocation {
    /// Parses a directory or an object store URL.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] for a `file:` URL that cannot be converted to a path, for example because it
    /// contains a host name. Does not check that the directory exists.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if !text.contains("://") {
            return Ok(Self::Directory(PathBuf::from(text)));
        }
        let url = Url::parse(text).ok();
        match url.filter(|url| url.scheme() == "file") {
            None => Ok(Self::Store(text.to_owned())),
            Some(url) => url
                .to_file_path()
                .map(Self::Directory)
                .map_err(|()| ConfigError::Value {
                    key: "state",
                    value: format!("{text:?}"),
                    rule: "expected a directory or an object store's URL".to_owned(),
                }),
        }
    }
}

/// Address at which metrics by tenant and data root are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsListen {
    /// Socket address. Port 0 selects a free port.
    pub address: SocketAddr,
    /// True to serve plain HTTP even if the host has a certificate.
    pub plain: bool,
}

/// Validated configuration of a host.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Name of the host.
    pub name: String,
    /// Socket address for tenants. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Location of guests, models and tenants.
    pub state: StateLocation,
    /// Directory for data of this host only.
    pub local: PathBuf,
    /// Certificate and key, or `None` to serve plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Proxies that announce client addresses by the PROXY protocol.
    pub proxies: Networks,
    /// Path of the admin socket. `None` disables the socket.
    pub admin_socket: Option<PathBuf>,
    /// Socket address for remote admins, always with TLS. `None` disables remote administration.
    pub admin_listen: Option<SocketAddr>,
    /// File with the token of the remote admin `admin`. A missing file is created on start.
    pub admin_token_file: PathBuf,
    /// PEM file with the authorities of client certificates that `admin_listen` requires, or `None` to require none.
    pub admin_client_ca: Option<PathBuf>,
    /// Maximum memory in bytes for the host and all lanes together.
    pub memory_budget: u64,
    /// Descriptions of limits that were lowered to fit the memory budget.
    pub lowered_limits: Vec<String>,
    /// Address of the metrics port. `None` disables the port.
    pub metrics_listen: Option<MetricsListen>,
    /// File with the token of the configured tenant. A missing file is created on start.
    pub token_file: PathBuf,
    /// Data roots, stores and quotas, which can change while the host runs.
    pub live: Live,
    /// True if the users of the stores do not operate the host, so error messages must not reveal its
    /// settings.
    pub hides_store_settings: bool,
    /// Device on which the lanes compute.
    pub device: Device,
    /// Process in which guests are compiled. The default is this process, and `frostline serve` uses a child
    /// process.
    pub compiler: Compiler,
    /// Number of engine lanes.
    pub lanes: usize,
    /// Maximum GPU memory of the lanes in bytes, or `None` to use most of the free memory.
    pub device_memory_budget: Option<u64>,
    /// Number of threads per lane.
    pub threads_per_lane: usize,
    /// Process in which the lanes' sessions are created. The default is this process. `frostline serve` can
    /// use child processes.
    pub lanes_place: LanesPlace,
    /// Number of image decoding threads.
    pub decode_threads: usize,
    /// Maximum number of concurrent extractions.
    pub running: usize,
    /// Maximum number of waiting extractions, divided among the tenants. A tenant with more than an equal
    /// part gets status 429.
    pub queued: usize,
    /// Maximum number of samples in one guest call.
    pub grant: usize,
    /// Maximum number of concurrent guest calls of an extraction.
    pub calls: usize,
    /// Maximum duration of an extraction, including the time in the queue.
    pub extraction_timeout: Duration,
    /// Maximum time for running work to finish after a stop is requested.
    pub drain: Duration,
    /// Limits on guests.
    pub guests: GuestSettings,
    /// Limits on client requests and stored data.
    pub limits: Limits,
    /// Clock of this machine.
    pub clock: LocalClock,
    /// The settings before validation.
    pub(crate) written: HostSettings,
}

impl HostConfig {
    /// Trusts the configured tenant like the user of the host: grants all data roots that this user can open,
    /// except system folders, and shows the details of store errors. A reload of the settings ends the grant.
    pub fn trust_tenant(&mut self) {
        self.live.grant_any_data();
        self.hides_store_settings = false;
    }
}
