use super::{ConfigError, HostConfig, Limits, StatePlace};
use crate::GrantedRoots;
use frostline_batching::GrantRules;
use frostline_engine::{Device, LanesPlace};
use frostline_sandbox::Compiler;
use frostline_wire::Quota;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A host's configuration as written in `host.toml`; flags may change fields before [`check`](Self::check).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Address and port; port 0 takes a free one.
    pub listen: String,
    /// Where guests and models are kept: a directory, created when missing, or an object store's URL (`s3://bucket/prefix`). Hosts with the
    /// same state serve the same guests and models.
    pub state: String,
    /// A directory of this host alone, for compiled guests, uploads on their way and profiles of this machine; created when missing.
    /// Default: `state` where that is a directory, else `frostline-local`.
    pub local: Option<PathBuf>,
    /// The file of the socket that `frostline admin` speaks to; only its owner may. Default of `frostline serve`: `admin.sock` in `local`.
    pub admin_socket: Option<PathBuf>,
    /// Address and port for admins from afar, over TLS alone; without it there are none.
    pub admin_listen: Option<String>,
    /// The file with the token of admins from afar; created with a fresh one when missing. Default: `admin-token` in `local`.
    pub admin_token_file: Option<PathBuf>,
    /// Address and port where `/metrics` says what each tenant had, for whoever runs the host: without a token, so for loopback or a network of
    /// one's own. Without it there is only `/metrics` where tenants ask, which names nobody.
    pub metrics_listen: Option<String>,
    /// The file with the token, one line; created with a fresh one when missing. Default: `token` in `local`.
    pub token_file: Option<PathBuf>,
    /// Object store URLs or directories that extractions may read, with everything below them.
    pub data: Vec<String>,
    /// Seconds that what runs may go on once the host is told to stop.
    pub drain: u64,
    /// Must be true to listen beyond loopback without `[tls]`.
    pub plain_http_beyond_loopback: bool,
    /// What encrypts connections.
    pub tls: Option<TlsFiles>,
    /// What computes.
    pub engine: EngineSettings,
    /// How extractions run.
    pub extractions: ExtractionSettings,
    /// What a client may send.
    pub limits: LimitSettings,
    /// What each tenant may use, by key (`frostline admin quota show` lists them), unless its admin set something else for it.
    pub quota: Quota,
}

/// An extraction of a few hundred samples takes seconds, and its trainer asks another host for what did not come; service managers kill
/// after 90 s by default, which must not come first.
const DRAIN: u64 = 60;

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7433".to_owned(),
            state: "frostline-state".to_owned(),
            local: None,
            admin_socket: None,
            admin_listen: None,
            admin_token_file: None,
            metrics_listen: None,
            token_file: None,
            data: Vec::new(),
            drain: DRAIN,
            plain_http_beyond_loopback: false,
            tls: None,
            engine: EngineSettings::default(),
            extractions: ExtractionSettings::default(),
            limits: LimitSettings::default(),
            quota: Quota::new(),
        }
    }
}

/// `[tls]`: files in PEM. They are looked at every few seconds, and what changed in them is used for connections from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The host's certificate, followed by those between it and an authority that clients trust.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// `[engine]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// `cpu` or `cuda:<number>`.
    pub device: String,
    /// Engine lanes, each with sessions of its own; 0 takes one per core, or one for a GPU.
    pub lanes: usize,
    /// Threads of one lane; 0 divides the cores among the lanes.
    pub threads_per_lane: usize,
    /// Threads that decode images; 0 takes one per core.
    pub decode_threads: usize,
    /// `frostline serve` runs each lane in a child process, so that a network that crashes ONNX Runtime ends no other
    /// tenant's work. A host inside another program does not: the networks there are its owner's.
    pub lanes_in_child: bool,
}

impl Default for EngineSettings {
    /// On the CPU one lane per core with one thread each: rows are independent, so whole batches side by side need no
    /// synchronisation within an operator.
    fn default() -> Self {
        Self {
            device: "cpu".to_owned(),
            lanes: 0,
            threads_per_lane: 0,
            decode_threads: 0,
            lanes_in_child: true,
        }
    }
}

/// `[extractions]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtractionSettings {
    /// Running at once.
    pub running: usize,
    /// Waiting beyond these.
    pub queued: usize,
    /// Samples of one guest call.
    pub grant: usize,
    /// Guest calls of one extraction at once; 0 takes two more than there are lanes.
    pub calls: usize,
    /// Seconds one extraction may take, waiting included.
    pub seconds: u64,
}

impl Default for ExtractionSettings {
    /// 4 running: a trainer keeps two or three requests in flight, and more only hold memory before the same lanes.
    /// 64 queued: JSON of 64 requests is some 10 MB; beyond that clients should wait on their side.
    /// Calls: one computes on every lane while one more decodes and another is encoded and sent.
    /// 10 minutes: a request of a few hundred samples takes seconds; half an hour would keep a place for the dead.
    fn default() -> Self {
        Self {
            running: 4,
            queued: 64,
            grant: GrantRules::default().samples,
            calls: 0,
            seconds: 600,
        }
    }
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Bytes of one guest.
    pub guest_bytes: u64,
    /// Bytes of one model.
    pub model_bytes: u64,
    /// Bytes of all uploads that are being received.
    pub upload_bytes: u64,
    /// Uploads that broke off and are kept to go on from.
    pub partials: usize,
    /// Bytes of these.
    pub partial_bytes: u64,
    /// Seconds they are kept.
    pub partial_seconds: u64,
    /// Samples of one extraction.
    pub samples: usize,
    /// Versions of one guest or model that are kept.
    pub versions: usize,
    /// Names of guests, and of models.
    pub names: usize,
    /// Connections at once.
    pub connections: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            guest_bytes: limits.guest_bytes,
            model_bytes: limits.model_bytes,
            upload_bytes: limits.upload_bytes,
            partials: limits.partials,
            partial_bytes: limits.partial_bytes,
            partial_seconds: limits.partial_age.as_secs(),
            samples: limits.samples,
            versions: limits.versions,
            names: limits.names,
            connections: limits.connections,
        }
    }
}

impl HostSettings {
    /// Reads a configuration file's text; relative paths stay as they are.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`], also for a key nobody knows.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax {
            detail: error.to_string(),
        })
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`], naming the key.
    pub fn check(self) -> Result<HostConfig, ConfigError> {
        let listen = checked_address("listen", &self.listen)?;
        if self.tls.is_none() && !listen.ip().is_loopback() && !self.plain_http_beyond_loopback {
            return Err(ConfigError::PlainHttp { listen });
        }
        let admin_listen = self.admin_listen.as_deref();
        let admin_listen = admin_listen
            .map(|text| checked_address("admin_listen", text))
            .transpose()?;
        if let (None, Some(listen)) = (&self.tls, admin_listen) {
            return Err(ConfigError::PlainAdmin { listen });
        }
        let metrics_listen = self.metrics_listen.as_deref();
        let metrics_listen = metrics_listen
            .map(|text| checked_address("metrics_listen", text))
            .transpose()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let device = checked_device(&self.engine.device)?;
        let or = |value: usize, fallback: usize| if value == 0 { fallback.max(1) } else { value };
        let lanes = within("engine.lanes", self.engine.lanes, 0, 64)?;
        let lanes = or(lanes, if device == Device::Cpu { cores } else { 1 });
        let threads = within("engine.threads_per_lane", self.engine.threads_per_lane, 0, 256)?;
        let decoders = within("engine.decode_threads", self.engine.decode_threads, 0, 256)?;
        let calls = within("extractions.calls", self.extractions.calls, 0, 64)?;
        let seconds = within("extractions.seconds", self.extractions.seconds, 1, 86_400)?;
        let state = StatePlace::parse(&self.state)?;
        let local = self.local.unwrap_or_else(|| match &state {
            StatePlace::Directory(directory) => directory.clone(),
            StatePlace::Store(_) => PathBuf::from("frostline-local"),
        });
        Ok(HostConfig {
            listen,
            token_file: self.token_file.unwrap_or_else(|| local.join("token")),
            state,
            tls: self.tls,
            admin_socket: self.admin_socket,
            admin_listen,
            metrics_listen,
            admin_token_file: self.admin_token_file.unwrap_or_else(|| local.join("admin-token")),
            local,
            data: GrantedRoots::new(&self.data)?,
            device,
            compiler: Compiler::InProcess,
            lanes,
            threads_per_lane: or(threads, cores / lanes),
            lanes_place: LanesPlace::InProcess,
            decode_threads: or(decoders, cores),
            running: within("extractions.running", self.extractions.running, 1, 1024)?,
            queued: within("extractions.queued", self.extractions.queued, 0, 100_000)?,
            grant: within("extractions.grant", self.extractions.grant, 1, 4096)?,
            calls: or(calls, lanes + 2),
            wall: Duration::from_secs(seconds),
            drain: Duration::from_secs(within("drain", self.drain, 0, 86_400)?),
            limits: self.limits.check()?,
            quota: self.quota,
        })
    }
}

impl LimitSettings {
    fn check(self) -> Result<Limits, ConfigError> {
        const GIB: u64 = 1 << 30;
        let model_bytes = within("limits.model_bytes", self.model_bytes, 1, 64 * GIB)?;
        let guest_bytes = within("limits.guest_bytes", self.guest_bytes, 1, GIB)?;
        let largest = model_bytes.max(guest_bytes);
        Ok(Limits {
            guest_bytes,
            model_bytes,
            upload_bytes: within("limits.upload_bytes", self.upload_bytes, largest, 1024 * GIB)?,
            partials: within("limits.partials", self.partials, 0, 10_000)?,
            partial_bytes: within("limits.partial_bytes", self.partial_bytes, 0, 1024 * GIB)?,
            partial_age: Duration::from_secs(within(
                "limits.partial_seconds",
                self.partial_seconds,
                0,
                366 * 86_400,
            )?),
            samples: within("limits.samples", self.samples, 1, 1 << 20)?,
            versions: within("limits.versions", self.versions, 1, 1000)?,
            names: within("limits.names", self.names, 1, 100_000)?,
            connections: within("limits.connections", self.connections, 4, 100_000)?,
            ..Limits::default()
        })
    }
}

fn within<T: PartialOrd + std::fmt::Display>(
    key: &'static str,
    value: T,
    low: T,
    high: T,
) -> Result<T, ConfigError> {
    if value >= low && value <= high {
        return Ok(value);
    }
    Err(ConfigError::Value {
        key,
        value: value.to_string(),
        rule: format!("it must lie between {low} and {high}"),
    })
}

fn checked_address(key: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| ConfigError::Value {
        key,
        value: format!("{text:?}"),
        rule: "it must be an address and a port, such as 127.0.0.1:7433".to_owned(),
    })
}

fn checked_device(text: &str) -> Result<Device, ConfigError> {
    Device::from_str(text).map_err(|_| ConfigError::Value {
        key: "engine.device",
        value: format!("{text:?}"),
        rule: "it must be cpu or cuda:<number>".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_pass_and_keep_what_is_written() {
        let config =
            HostConfig::from_toml("data = [\"/srv/photos\"]\ndrain = 5\n[extractions]\ngrant = 7\n").unwrap();
        assert!(config.listen.ip().is_loopback());
        assert_eq!((config.grant, config.drain), (7, Duration::from_secs(5)));
        assert_eq!(config.token_file, PathBuf::from("frostline-state/token"));
    }

    #[test]
    fn what_is_of_this_host_alone_lies_beside_a_state_that_is_a_directory() {
        let local = |text: &str| HostConfig::from_toml(text).unwrap().local;
        assert_eq!(local("state = \"/srv/state\""), PathBuf::from("/srv/state"));
        assert_eq!(
            local("state = \"file:///srv/state\""),
            PathBuf::from("/srv/state")
        );
        assert_eq!(
            local("state = \"s3://bucket/state\""),
            PathBuf::from("frostline-local")
        );
        let both = "state = \"/srv/state\"\nlocal = \"/var/cache/frostline\"";
        assert_eq!(local(both), PathBuf::from("/var/cache/frostline"));
        let config = HostConfig::from_toml(both).unwrap();
        assert_eq!(config.token_file, PathBuf::from("/var/cache/frostline/token"));
        assert!(HostConfig::from_toml("state = \"file://elsewhere/srv\"").is_err());
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused_by_name() {
        let refused = |text: &str| HostConfig::from_toml(text).unwrap_err().to_string();
        assert!(refused("listne = \"127.0.0.1:1\"").contains("listne"));
        assert!(refused("[extractions]\ngrant = 0").contains("extractions.grant"));
        assert!(refused("listen = \"here\"").contains("listen"));
        assert!(refused("[engine]\ndevice = \"tpu\"").contains("engine.device"));
        assert!(refused("data = [\"s3://b?x=1\"]").contains("s3://b?x=1"));
        assert!(refused("[limits]\nupload_bytes = 1").contains("limits.upload_bytes"));
        assert!(refused("drain = 100000").contains("drain"));
    }

    #[test]
    fn plain_http_leaves_the_machine_only_when_told_so() {
        let open = "listen = \"0.0.0.0:7433\"\n";
        assert!(matches!(
            HostConfig::from_toml(open),
            Err(ConfigError::PlainHttp { .. })
        ));
        assert!(HostConfig::from_toml(&format!("{open}plain_http_beyond_loopback = true")).is_ok());
        let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
        assert!(HostConfig::from_toml(&format!("{open}{tls}")).is_ok());
        assert!(HostConfig::from_toml("[tls]\ncertificate = \"cert.pem\"\n").is_err());
    }

    #[test]
    fn admins_from_afar_take_tls_even_on_loopback() {
        let admin = "admin_listen = \"127.0.0.1:0\"\n";
        assert!(matches!(
            HostConfig::from_toml(admin),
            Err(ConfigError::PlainAdmin { .. })
        ));
        let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
        let config = HostConfig::from_toml(&format!("{admin}{tls}")).unwrap();
        assert_eq!(
            config.admin_token_file,
            PathBuf::from("frostline-state/admin-token")
        );
    }
}
