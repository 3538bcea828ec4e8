//! The host's configuration, in two steps: [`HostSettings`] as written, [`HostConfig`] as checked.

mod limits;
mod settings;

pub use limits::Limits;
pub(crate) use limits::upload_units;
pub use settings::{EngineSettings, ExtractionSettings, HostSettings, LimitSettings, TlsFiles};

use crate::GrantedRoots;
use frostline_engine::{Device, LanesPlace};
use frostline_sandbox::Compiler;
use frostline_wire::Quota;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// A configuration that cannot be right. Found before a port opens.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not TOML, or has keys nobody knows.
    #[error("the host configuration cannot be read: {detail}")]
    Syntax {
        /// The parser's text, with line and column.
        detail: String,
    },
    /// A value out of its range.
    #[error("host configuration: {key} is {value}, {rule}")]
    Value {
        /// The key, such as `extractions.grant`.
        key: &'static str,
        /// What was written.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A data root that is no URL or path.
    #[error("host configuration: data root {root:?}: {detail}")]
    Root {
        /// As written.
        root: String,
        /// What is wrong.
        detail: String,
    },
    /// Plain HTTP would leave the machine.
    #[error(
        "host configuration: listen = \"{listen}\" would send tokens and data over the network unencrypted; name a certificate and its \
         key under [tls], listen on a loopback address, or write plain_http_beyond_loopback = true if the network is private"
    )]
    PlainHttp {
        /// The address.
        listen: SocketAddr,
    },
    /// Admins from afar without encryption.
    #[error(
        "host configuration: admin_listen = \"{listen}\" takes a certificate and its key, named under [tls]; admins on this machine use the socket"
    )]
    PlainAdmin {
        /// The address.
        listen: SocketAddr,
    },
}

/// Where hosts keep what they share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatePlace {
    /// A directory.
    Directory(PathBuf),
    /// An object store's URL.
    Store(String),
}

impl StatePlace {
    fn parse(text: &str) -> Result<Self, ConfigError> {
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
                    rule: "it must be a directory or an object store's URL".to_owned(),
                }),
        }
    }
}

/// A checked configuration: whatever it says can be tried.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where guests and models are kept.
    pub state: StatePlace,
    /// The directory of this host alone.
    pub local: PathBuf,
    /// What encrypts connections; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The file of the admin's socket; `None` for no admin.
    pub admin_socket: Option<PathBuf>,
    /// Where admins from afar are listened to, over TLS; `None` for nowhere.
    pub admin_listen: Option<SocketAddr>,
    /// The file with their token; created on first start.
    pub admin_token_file: PathBuf,
    /// Where `/metrics` says what each tenant had; `None` for nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// The file with the tenant's token; created on first start.
    pub token_file: PathBuf,
    /// Where data may be read.
    pub data: GrantedRoots,
    /// What the lanes compute on.
    pub device: Device,
    /// Where guests are compiled; in this process unless whoever starts the host says otherwise.
    pub compiler: Compiler,
    /// Engine lanes.
    pub lanes: usize,
    /// Threads of one lane.
    pub threads_per_lane: usize,
    /// Where the lanes' sessions live: in this process, unless the program that starts the host can serve lanes too.
    pub lanes_place: LanesPlace,
    /// Threads that decode images.
    pub decode_threads: usize,
    /// Extractions running at once.
    pub running: usize,
    /// Extractions waiting beyond these; one more is answered 429.
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

impl HostConfig {
    /// Reads and checks a configuration file's text.
    ///
    /// # Errors
    /// [`ConfigError`], naming the key.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        HostSettings::from_toml(text)?.check()
    }
}
