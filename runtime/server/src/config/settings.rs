//! Settings in `host.toml`, before validation.

use super::error::ConfigError;
use super::limits::Limits;
use super::units::{bytes, optional_bytes, quota, seconds};
use frostline_engine::Isolation;
use frostline_sandbox::SandboxConfig;
use frostline_wire::Quota;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Configuration as written in `host.toml`. Command-line flags may change fields before
/// [`check`](Self::check).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Name of the host. Keep it when the address changes, because clients that find hosts by DNS divide the
    /// data by name. Default: the system's host name.
    pub name: Option<String>,
    /// Address and port for tenants. Port 0 selects a free port.
    pub listen: String,
    /// State with guests, models and tenants: a directory, created if missing, or an object store URL
    /// (`s3://bucket/prefix`). Hosts with the same state serve the same guests and models.
    pub state: String,
    /// Directory for data of this host only, such as compiled guests, uploads in progress and profiles of
    /// this machine. It is created if missing. Required if `state` is an object store. Default: `state`.
    pub local: Option<PathBuf>,
    /// Path of the Unix socket for `frostline admin`. Only the owner can connect. Default: `admin.sock` in
    /// `local`.
    pub admin_socket: Option<PathBuf>,
    /// Address and port for remote admins, always with TLS. Without this setting, remote administration is
    /// disabled.
    pub admin_listen: Option<String>,
    /// File with a token of remote admins for everything. A missing file is created with a new token. Default:
    /// `admin-token` in `local`.
    pub admin_token_file: Option<PathBuf>,
    /// PEM file with certificate authorities. If set, clients of `admin_listen` must have a certificate that one of
    /// these has signed, in addition to a token. The file is read at the start.
    pub admin_client_ca: Option<PathBuf>,
    /// Address and port of the metrics for the operator, which include the figures of each tenant and data
    /// root. No token is required, so use loopback or a private network. The port uses TLS if the host has a
    /// certificate; with `http://` before the address it always uses plain HTTP. Without this setting, only
    /// the port for tenants serves `/metrics`, without names of tenants or data roots.
    pub metrics_listen: Option<String>,
    /// File with the token of the configured tenant on a single line. A missing file is created with a new
    /// token. Default: `token` in `local`.
    pub token_file: Option<PathBuf>,
    /// Data roots of the configured tenant: object store URLs or directories. Extractions may read all
    /// objects below these roots.
    pub data: Vec<String>,
    /// Maximum memory in bytes for the host and all lanes together. Default: 80 % of the memory that the
    /// machine and the memory cgroup allow.
    #[serde(deserialize_with = "optional_bytes")]
    pub memory_budget: Option<u64>,
    /// Maximum time in seconds for running work to finish after a stop is requested.
    #[serde(deserialize_with = "seconds")]
    pub drain: u64,
    /// Isolation between tenants on the lanes of `frostline serve`: `shared` clears the memory of a lane
    /// process before the next tenant, and `tenant` starts a new process.
    pub isolation: Isolation,
    /// Makes `frostline serve` fail at the start if the kernel does not support Landlock or seccomp.
    pub require_walls: bool,
    /// Allow plain HTTP beyond loopback. Required to listen on other addresses without `[tls]`.
    pub plain_http_beyond_loopback: bool,
    /// Addresses and networks (`10.0.0.0/8`) of proxies that announce client addresses by the PROXY protocol,
    /// version 1 or 2. Connections from there without the PROXY protocol are closed.
    pub proxy_protocol_from: Vec<String>,
    /// TLS certificate and key.
    pub tls: Option<TlsFiles>,
    /// Lanes, devices and decoding threads.
    pub engine: EngineSettings,
    /// Limits on concurrent extractions.
    pub extractions: ExtractionSettings,
    /// Limits on guests.
    pub guests: GuestSettings,
    /// Limits on requests, uploads and connections.
    pub limits: LimitSettings,
    /// Default quota of each tenant. `frostline admin quota show` lists the keys, and an admin can set other
    /// values for a tenant.
    #[serde(deserialize_with = "quota")]
    pub quota: Quota,
    /// Settings for individual S3 buckets. The key is the bucket name in data roots: `[store.photos]` applies
    /// to `s3://photos/...`. These settings replace all `AWS_*` variables. Without `keys`, the variables that
    /// contain credentials still apply.
    pub store: BTreeMap<String, StoreSettings>,
    /// Remote admins with separate tokens. The key is the name in the audit.
    pub admins: BTreeMap<String, AdminSettings>,
}

/// Default of `drain`. Most extractions need only seconds, and the trainer requests missing samples from
/// another host. The value is lower than 90 s, the time after which service managers kill a process by
/// default.
const DEFAULT_DRAIN: u64 = 60;

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            name: None,
            listen: "127.0.0.1:7433".to_owned(),
            state: "frostline-state".to_owned(),
            local: None,
            admin_socket: None,
            admin_listen: None,
            admin_token_file: None,
            admin_client_ca: None,
            metrics_listen: None,
            token_file: None,
            data: Vec::new(),
            memory_budget: None,
            drain: DEFAULT_DRAIN,
            isolation: Isolation::Shared,
            require_walls: false,
            plain_http_beyond_loopback: false,
            proxy_protocol_from: Vec::new(),
            tls: None,
            engine: EngineSettings::default(),
            extractions: ExtractionSettings::default(),
            guests: GuestSettings::default(),
            limits: LimitSettings::default(),
            quota: Quota::new(),
            store: BTreeMap::new(),
            admins: BTreeMap::new(),
        }
    }
}

/// `[tls]`: PEM files. They are checked every few seconds, and new connections use the changed content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificate of the host, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
}

/// Permissions of a remote admin. Each role includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum AdminRole {
    /// View everything and change nothing.
    Read,
    /// Change tenants, with their tokens, quotas, guests, models and jobs.
    Tenants,
    /// Change everything, including shared models and the draining of hosts.
    All,
}

/// A changed section applies after a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSettings {
    /// Permissions: `read` to view everything, `tenants` to also change tenants and what belongs to them, or `all`.
    pub role: AdminRole,
    /// File with the token. A missing file is created with a new token. Default: `admins/NAME` in `local`.
    pub token_file: Option<PathBuf>,
    /// UTC date, such as `2027-03-31`, from which the token is refused. Default: never.
    pub expires: Option<String>,
    /// Header in which an authenticating proxy names the user, such as `x-auth-request-email`. The token then belongs
    /// to the proxy, and requests without the header are refused. Without this setting, such headers are ignored.
    pub user_header: Option<String>,
}

/// `{tenant}` in `role` and `external_id` is replaced by the name of the tenant that makes the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// Bucket name at the store, if it differs from the name in the data root. This is needed if two stores
    /// have a bucket with the same name.
    pub bucket: Option<String>,
    /// URL of the store. Default: Amazon's.
    pub endpoint: Option<String>,
    /// Region of the bucket. Default: `us-east-1`.
    pub region: Option<String>,
    /// File with keys in the format of `~/.aws/credentials`. Changes are loaded automatically. Default: the
    /// credentials of the host's environment.
    pub keys: Option<PathBuf>,
    /// Section of the keys file. Default: `default`.
    pub profile: Option<String>,
    /// ARN of a role to assume.
    pub role: Option<String>,
    /// External ID that the trust policy of the role requires.
    pub external_id: Option<String>,
    /// URL of the token service that issues credentials for the role. Default: Amazon's in the region.
    pub sts: Option<String>,
    /// PEM file with certificates that are trusted for this store in addition to those of the system.
    pub ca: Option<PathBuf>,
    /// HTTP proxy URL that does not contain a password. Default: from `HTTPS_PROXY` and `NO_PROXY`.
    pub proxy: Option<String>,
    /// Pay for requests and traffic with this account.
    pub requester_pays: bool,
    /// Send unsigned requests, for public buckets.
    pub unsigned: bool,
    /// Allow `http://` in `endpoint` beyond loopback.
    pub plain_http: bool,
    /// The host name in `endpoint` includes the bucket, for stores that refuse it in the path.
    pub virtual_host: bool,
}

/// Section `[engine]`: device, lanes and threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Compute device: `cpu` or `cuda:<number>`.
    pub device: String,
    /// Number of engine lanes. Lanes do not share sessions. 0 selects one lane per core, or a single lane for
    /// a GPU.
    pub lanes: usize,
    /// Threads per lane. 0 divides the number of cores by the number of lanes.
    pub threads_per_lane: usize,
    /// Maximum GPU memory of the lanes in bytes. Default: 90 % of the memory that is free at the start.
    #[serde(deserialize_with = "optional_bytes")]
    pub device_memory_budget: Option<u64>,
    /// Threads that decode images. 0 selects one per core.
    pub decode_threads: usize,
    /// Run each lane of `frostline serve` in a child process. If a network crashes ONNX Runtime, other
    /// tenants are not affected. Hosts that are embedded in another program ignore this setting and run all
    /// lanes in that program.
    pub lanes_in_child: bool,
}

impl Default for EngineSettings {
    /// On the CPU, the default is a lane per core with a single thread. Rows are independent, so parallel
    /// batches need no synchronization within an operator.
    fn default() -> Self {
        Self {
            device: "cpu".to_owned(),
            lanes: 0,
            threads_per_lane: 0,
            device_memory_budget: None,
            decode_threads: 0,
            lanes_in_child: true,
        }
    }
}

/// Section `[extractions]`: concurrency and duration of extractions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtractionSettings {
    /// Maximum number of concurrent extractions. 0 selects 16 per lane. In practice, memory usually limits
    /// the number.
    pub running: usize,
    /// Maximum number of waiting extractions.
    pub queued: usize,
    /// Maximum number of samples in one guest call.
    pub grant: usize,
    /// Maximum number of concurrent guest calls per extraction. 0 selects the number of lanes plus two.
    pub calls: usize,
    /// Maximum duration of an extraction in seconds, including the time in the queue.
    #[serde(deserialize_with = "seconds")]
    pub seconds: u64,
}

impl Default for ExtractionSettings {
    /// - `running`: limited by memory. Extractions reserve memory before they start, so a fixed number is not
    ///   needed.
    /// - `queued`: 64. The JSON of 64 requests has about 10 MB, and with more requests, clients should wait
    ///   on their side.
    /// - `grant`: 64. The host chooses the size so that a lane needs half a second for it, and uses 16 for a
    ///   network without measurements. More samples only wait in memory (64 ImageNet samples are 39 MB as
    ///   pixels) and delay the first row.
    /// - `calls`: each lane executes the samples of a call while two more calls decode images and encode
    ///   rows.
    /// - `seconds`: 600. Typical requests need seconds, and a longer limit would hold the permit of a dead
    ///   client.
    fn default() -> Self {
        Self {
            running: 0,
            queued: 64,
            grant: 64,
            calls: 0,
            seconds: 600,
        }
    }
}

/// Section `[guests]`. The defaults are explained in [`SandboxConfig`] and [`Limits`](frostline_sandbox::Limits) of
/// the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestSettings {
    /// Maximum memory of a guest call in bytes, up to 4 GiB. A call that exceeds it is repeated with half the
    /// samples.
    #[serde(deserialize_with = "bytes")]
    pub memory_bytes: u64,
    /// Maximum number of entries of a guest's tables, which contain its functions.
    pub table_elements: usize,
    /// Maximum number of tensors, graphs and contexts that a guest call holds at the same time.
    pub handles: usize,
    /// Maximum CPU time in seconds that a guest uses between two calls to the host.
    #[serde(deserialize_with = "seconds")]
    pub slice_seconds: u64,
    /// Maximum memory in bytes for compiling a guest. The host uses up to half of `memory_budget` for it.
    #[serde(deserialize_with = "bytes")]
    pub compile_bytes: u64,
    /// Maximum CPU time in seconds for compiling a guest.
    #[serde(deserialize_with = "seconds")]
    pub compile_seconds: u64,
}

impl Default for GuestSettings {
    fn default() -> Self {
        let sandbox = SandboxConfig::default();
        Self {
            memory_bytes: sandbox.memory_bytes as u64,
            table_elements: sandbox.table_elements,
            handles: sandbox.handles,
            slice_seconds: frostline_sandbox::Limits::default().slice.as_secs(),
            compile_bytes: sandbox.compiler_memory_bytes,
            compile_seconds: sandbox.compiler_cpu_seconds,
        }
    }
}

/// Section `[limits]`. The defaults are explained in [`Limits`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Maximum size of a guest in bytes.
    #[serde(deserialize_with = "bytes")]
    pub guest_bytes: u64,
    /// Maximum size of a model in bytes.
    #[serde(deserialize_with = "bytes")]
    pub model_bytes: u64,
    /// Total bytes of uploads in progress.
    #[serde(deserialize_with = "bytes")]
    pub upload_bytes: u64,
    /// Number of interrupted uploads that can be resumed.
    pub partials: usize,
    /// Total bytes of interrupted uploads.
    #[serde(deserialize_with = "bytes")]
    pub partial_bytes: u64,
    /// Maximum age of interrupted uploads in seconds.
    #[serde(deserialize_with = "seconds")]
    pub partial_seconds: u64,
    /// Maximum number of samples per extraction.
    pub samples: usize,
    /// Maximum number of pixels of an image (width times height). The memory for decoding is part of the
    /// memory budget, so a small budget limits images as well.
    pub image_pixels: u64,
    /// Days for which a removed tenant is kept and can be restored. With 0, it is deleted immediately.
    pub removed_tenant_days: u64,
    /// Number of stored versions per guest or model.
    pub versions: usize,
    /// Number of guest names per tenant. The same limit applies to model names.
    pub names: usize,
    /// Number of concurrent connections.
    pub connections: usize,
    /// Bytes of prepared networks on the disk of the host.
    #[serde(deserialize_with = "bytes")]
    pub prepared_bytes: u64,
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
            image_pixels: limits.decode.max_pixels,
            removed_tenant_days: limits.removed_tenant.as_secs() / 86_400,
            versions: limits.versions,
            names: limits.names,
            connections: limits.connections,
            prepared_bytes: limits.prepared_bytes,
        }
    }
}

impl HostSettings {
    /// Parses the text of a configuration file. Relative paths stay relative.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Syntax`] for invalid TOML or an unknown key.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            ConfigError::Syntax {
                line: before.unwrap_or_default().matches('\n').count() + 1,
                detail: error.message().replace('\n', " "),
            }
        })
    }
}
