use super::error::ConfigError;
use super::limits::Limits;
use super::networks::Networks;
use super::roots::DataRoots;
use super::settings::TlsFiles;
use super::stores::Stores;
use frostline_engine::{Device, LanesPlace};
use frostline_sandbox::Compiler;
use frostline_wire::Quota;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Where hosts keep what they share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateLocation {
    /// A directory.
    Directory(PathBuf),
    /// An object store's URL.
    Store(String),
}

impl StateLocation {
    /// Reads a directory or an object store's URL.
    ///
    /// # Errors
    /// [`ConfigError`] for a `file:` URL that names no directory.
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

/// Where metrics are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsListen {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether over plain HTTP in any case; otherwise as the host itself is served.
    pub plain: bool,
}

/// A checked configuration: whatever it says can be tried.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// What the host calls itself.
    pub name: String,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where guests and models are kept.
    pub state: StateLocation,
    /// The directory of this host alone.
    pub local: PathBuf,
    /// What encrypts connections; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Proxies that say whose connections they pass on.
    pub proxies: Networks,
    /// The file of the admin's socket; `None` for no admin.
    pub admin_socket: Option<PathBuf>,
    /// Where admins from afar are listened to, over TLS; `None` for nowhere.
    pub admin_listen: Option<SocketAddr>,
    /// The file with their token; created on first start.
    pub admin_token_file: PathBuf,
    /// The token of those who change nothing, where there are any.
    pub admin_read_token_file: Option<PathBuf>,
    /// Bytes that the host and its lanes may hold together.
    pub memory_budget: u64,
    /// Limits that are lower than written, since the budget holds no more: in words.
    pub lowered: Vec<String>,
    /// Where `/metrics` says what each tenant had; `None` for nowhere.
    pub metrics_listen: Option<MetricsListen>,
    /// The file with the tenant's token; created on first start.
    pub token_file: PathBuf,
    /// Where data may be read.
    pub data: DataRoots,
    /// How the stores of these are reached.
    pub stores: Stores,
    /// What the lanes compute on.
    pub device: Device,
    /// Where guests are compiled; in this process unless whoever starts the host says otherwise.
    pub compiler: Compiler,
    /// Engine lanes.
    pub lanes: usize,
    /// Bytes of a GPU's memory that lanes may hold; `None` for what is free.
    pub device_memory_budget: Option<u64>,
    /// Threads of one lane.
    pub threads_per_lane: usize,
    /// Where the lanes' sessions live: in this process, unless the program that starts the host can serve lanes too.
    pub lanes_place: LanesPlace,
    /// Threads that decode images.
    pub decode_threads: usize,
    /// Extractions running at once.
    pub running: usize,
    /// Extractions waiting beyond these, divided among tenants; who has more than its share is answered 429.
    pub queued: usize,
    /// Samples of one guest call.
    pub grant: usize,
    /// Guest calls of one extraction at once.
    pub calls: usize,
    /// The most an extraction may take, waiting included.
    pub wall: Duration,
    /// How long what runs may go on once the host is told to stop.
    pub drain: Duration,
    /// What a client may send and hold.
    pub limits: Limits,
    /// What a tenant may use that has no quota of its own, where that is not the default.
    pub quota: Quota,
}
