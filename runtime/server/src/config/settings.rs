//! A configuration as it is written.

use super::error::ConfigError;
use super::limits::Limits;
use super::units::{bytes, optional_bytes, quota, seconds};
use frostline_engine::Isolation;
use frostline_wire::Quota;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A host's configuration as written in `host.toml`; flags may change fields before [`check`](Self::check).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// What the host calls itself; it should stay the same when its address does not, since clients that find hosts by DNS divide the data by
    /// it. Default: the system's host name.
    pub name: Option<String>,
    /// Address and port; port 0 takes a free one.
    pub listen: String,
    /// Where guests and models are kept: a directory, created when missing, or an object store's URL (`s3://bucket/prefix`). Hosts with the
    /// same state serve the same guests and models.
    pub state: String,
    /// A directory of this host alone, for compiled guests, uploads on their way and profiles of this machine; created when missing.
    /// Default: `state` where that is a directory, else `frostline-local`.
    pub local: Option<PathBuf>,
    /// The file of the socket that `frostline admin` speaks to; only its owner may. Default: `admin.sock` in `local`.
    pub admin_socket: Option<PathBuf>,
    /// Address and port for admins from afar, over TLS alone; without it there are none.
    pub admin_listen: Option<String>,
    /// The file with the token of admins from afar; created with a fresh one when missing. Default: `admin-token` in `local`.
    pub admin_token_file: Option<PathBuf>,
    /// The file with a token of admins from afar who may look at everything and change nothing; created with a fresh one when missing.
    /// Without it there are none.
    pub admin_read_token_file: Option<PathBuf>,
    /// Address and port where `/metrics` says what each tenant had, for whoever runs the host: without a token, so for loopback or a network of
    /// one's own; over TLS where the host has a certificate, or with `http://` before it over plain HTTP in any case. Without it there is only
    /// `/metrics` where tenants ask, which names nobody.
    pub metrics_listen: Option<String>,
    /// The file with the token, one line; created with a fresh one when missing. Default: `token` in `local`.
    pub token_file: Option<PathBuf>,
    /// Object store URLs or directories that extractions may read, with everything below them.
    pub data: Vec<String>,
    /// Bytes of memory that the host and its lanes may hold together, for whatever is asked of it. Default: 80 % of what its memory cgroup
    /// allows, else of the machine's.
    #[serde(deserialize_with = "optional_bytes")]
    pub memory_budget: Option<u64>,
    /// Seconds that what runs may go on once the host is told to stop.
    #[serde(deserialize_with = "seconds")]
    pub drain: u64,
    /// What a lane of `frostline serve` keeps from one tenant to the next: `shared` keeps its process and clears memory, `tenant` starts
    /// another process.
    pub isolation: Isolation,
    /// Whether `frostline serve` refuses to start where the kernel lacks Landlock or seccomp.
    pub require_walls: bool,
    /// Must be true to listen beyond loopback without `[tls]`.
    pub plain_http_beyond_loopback: bool,
    /// Addresses and networks (`10.0.0.0/8`) of proxies that say by the PROXY protocol, version 1 or 2, whose connections they pass on. From
    /// there no connection is taken without it.
    pub proxy_protocol_from: Vec<String>,
    /// What encrypts connections.
    pub tls: Option<TlsFiles>,
    /// What computes.
    pub engine: EngineSettings,
    /// How extractions run.
    pub extractions: ExtractionSettings,
    /// What a client may send.
    pub limits: LimitSettings,
    /// What each tenant may use, by key (`frostline admin quota show` lists them), unless its admin set something else for it.
    #[serde(deserialize_with = "quota")]
    pub quota: Quota,
    /// Settings of single S3 buckets, by the name that they have in data roots: `[store.photos]` is for `s3://photos/...`. They stand in place of
    /// all `AWS_*` variables; where no `keys` are given, of those with credentials they do not.
    pub store: BTreeMap<String, StoreSettings>,
}

/// An extraction of a few hundred samples takes seconds, and its trainer asks another host for what did not come; service managers kill
/// after 90 s by default, which must not come first.
const DRAIN: u64 = 60;

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
            admin_read_token_file: None,
            metrics_listen: None,
            token_file: None,
            data: Vec::new(),
            memory_budget: None,
            drain: DRAIN,
            isolation: Isolation::Shared,
            require_walls: false,
            plain_http_beyond_loopback: false,
            proxy_protocol_from: Vec::new(),
            tls: None,
            engine: EngineSettings::default(),
            extractions: ExtractionSettings::default(),
            limits: LimitSettings::default(),
            quota: Quota::new(),
            store: BTreeMap::new(),
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

/// `{tenant}` in `role` and `external_id` stands for the name of the tenant whose request it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// The bucket's name at the store, where it is another: two stores may each have a bucket of one name.
    pub bucket: Option<String>,
    /// The store's URL. Default: Amazon's.
    pub endpoint: Option<String>,
    /// The bucket's region. Default: `us-east-1`.
    pub region: Option<String>,
    /// A file with keys, of the form of `~/.aws/credentials`; it is read again when it changes. Default: the credentials of the host's
    /// environment.
    pub keys: Option<PathBuf>,
    /// The section of that file. Default: `default`.
    pub profile: Option<String>,
    /// ARN of a role that the credentials take on.
    pub role: Option<String>,
    /// The external id that the role's trust policy asks for.
    pub external_id: Option<String>,
    /// URL of the token service that gives the role. Default: Amazon's in the region.
    pub sts: Option<String>,
    /// A file with certificates, in PEM, that the store is trusted by beside those the system trusts.
    pub ca: Option<PathBuf>,
    /// URL of a proxy for HTTP, without a password. Default: as `HTTPS_PROXY` and `NO_PROXY` say.
    pub proxy: Option<String>,
    /// Whether this account pays for requests and traffic.
    pub requester_pays: bool,
    /// Whether requests are not signed, as for a public bucket.
    pub unsigned: bool,
    /// Whether `endpoint` may be plain `http://` beyond loopback.
    pub plain_http: bool,
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
    /// Bytes of a GPU's memory that lanes may hold. Default: nine tenths of what its driver says is free when the host starts.
    #[serde(deserialize_with = "optional_bytes")]
    pub device_memory_budget: Option<u64>,
    /// Threads that decode images; 0 takes one per core.
    pub decode_threads: usize,
    /// `frostline serve` runs each lane in a child process, so that a network that crashes ONNX Runtime ends no other
    /// tenant's work. A host inside another program does not: the networks there are its owner's.
    pub lanes_in_child: bool,
}

impl Default for EngineSettings {
    /// On the CPU one lane per core with one thread each: rows are independent, so whole batches side by side need no
    /// synchronization within an operator.
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

/// `[extractions]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtractionSettings {
    /// Running at once; 0 takes as many as there is memory for, and 16 for each lane at most.
    pub running: usize,
    /// Waiting beyond these.
    pub queued: usize,
    /// Most samples of one guest call.
    pub grant: usize,
    /// Guest calls of one extraction at once; 0 takes two more than there are lanes.
    pub calls: usize,
    /// Seconds one extraction may take, waiting included.
    #[serde(deserialize_with = "seconds")]
    pub seconds: u64,
}

impl Default for ExtractionSettings {
    /// As many running as memory allows: what each holds is reserved first, so a number says nothing of it.
    /// 64 queued: JSON of 64 requests is some 10 MB; beyond that clients should wait on their side.
    /// Grants: as many samples as a lane computes in half a second, 16 of a network that is not known yet, and at most 64: more only wait in
    /// memory (64 ImageNet samples are 39 MB as pixels), and the first row leaves later.
    /// Calls: one computes on every lane while one more decodes and another is encoded and sent.
    /// 10 minutes: a request of a few hundred samples takes seconds; half an hour would keep a permit for the dead.
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

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Bytes of one guest.
    #[serde(deserialize_with = "bytes")]
    pub guest_bytes: u64,
    /// Bytes of one model.
    #[serde(deserialize_with = "bytes")]
    pub model_bytes: u64,
    /// Bytes of all uploads that are being received.
    #[serde(deserialize_with = "bytes")]
    pub upload_bytes: u64,
    /// Uploads that broke off and are kept to go on from.
    pub partials: usize,
    /// Bytes of these.
    #[serde(deserialize_with = "bytes")]
    pub partial_bytes: u64,
    /// Seconds they are kept.
    #[serde(deserialize_with = "seconds")]
    pub partial_seconds: u64,
    /// Samples of one extraction.
    pub samples: usize,
    /// Versions of one guest or model that are kept.
    pub versions: usize,
    /// Names of guests, and of models.
    pub names: usize,
    /// Connections at once.
    pub connections: usize,
    /// Bytes of prepared networks on the host's own disk.
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
            versions: limits.versions,
            names: limits.names,
            connections: limits.connections,
            prepared_bytes: limits.prepared_bytes,
        }
    }
}

impl HostSettings {
    /// Reads a configuration file's text; relative paths stay as they are.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`], also for a key nobody knows.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax { detail: error.into() })
    }
}
