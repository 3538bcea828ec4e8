//! Arguments of the host commands, and flags for the selection of hosts.

use super::guest::Authoring;
use super::interface::InterfaceFlags;
use crate::host::HostAccess;
use clap::{Args, Subcommand};
use frostline_job::flags::{GivenFlags, named};
use frostline_job::{HostList, PixelFlags, PrefixPrecision};
use frostline_server::Isolation;
use frostline_wire::{Layout, parse_seconds_or_number as drain_seconds, parse_size as size};
use std::path::PathBuf;

/// Run a storage host
///
/// Flags override the settings in the configuration file. SIGHUP reloads data, [quota] and [store] from this
/// file. The token of the tenant is stored in the token
/// file, which is created at the first start.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  frostline serve --config host.toml
  frostline serve --config host.toml --check
  frostline serve --data s3://photos/acme --state /var/lib/frostline --token-file /etc/frostline/token --listen 127.0.0.1:8080
  frostline serve --config host.toml --listen 0.0.0.0:7433 --tls-certificate cert.pem --tls-key key.pem")]
pub(crate) struct ServeFlags {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Data root that the tenant may read (may be repeated)
    #[arg(long, value_name = "URL")]
    pub(crate) data: Vec<String>,
    /// State with guests and models: a directory or an object store URL (s3://bucket/prefix). Hosts with the
    /// same state serve the same guests and models
    #[arg(long, value_name = "URL")]
    pub(crate) state: Option<String>,
    /// Directory of this host only, for compiled guests, uploads in progress and profiles [default: --state
    /// if it is a directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) local: Option<PathBuf>,
    /// PEM file with the certificate of the host, reloaded on changes. Without a certificate, the host uses
    /// plain HTTP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Name of the host, which should stay the same if the address changes. Clients that find hosts by DNS
    /// divide the data by name [default: the system's host name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Unix socket for `frostline admin` [default: admin.sock in the local directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_socket: Option<PathBuf>,
    /// Address to listen on for `frostline admin --host`, with TLS. By default, remote administration is
    /// disabled
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin_listen: Option<String>,
    /// File with the token for `frostline admin --host` [default: admin-token in the local directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// PEM file with certificate authorities. Clients of --admin-listen must have a certificate that one of these
    /// has signed, in addition to a token
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_client_ca: Option<PathBuf>,
    /// Address for /metrics including the figures of tenants, such as 127.0.0.1:7435. No token is required.
    /// Use http://0.0.0.0:7435 for plain HTTP if the host has a certificate. Without this flag, /metrics
    /// contains no figures of tenants
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<String>,
    /// File with the token of the tenant
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Maximum memory for the host and all lanes, such as 4GiB [default: 80 % of the memory allowed by the
    /// machine and the memory cgroup]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) memory_budget: Option<u64>,
    /// Maximum number of pixels of an image (width times height) [default: 268435456, for photos of 200
    /// megapixels]
    #[arg(long, value_name = "PIXELS")]
    pub(crate) image_pixels: Option<u64>,
    /// Maximum time in seconds for running extractions to finish after SIGTERM or Ctrl-C. Another signal,
    /// at least a second later, ends the host immediately [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = drain_seconds)]
    pub(crate) drain: Option<u64>,
    /// Device for networks (cpu or cuda:0)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Maximum GPU memory for the lanes, such as 8GiB [default: 90 % of the free memory]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) device_memory_budget: Option<u64>,
    /// Number of engine lanes, which compute batches concurrently [default: one per core, or a single lane
    /// for a GPU]
    #[arg(long)]
    pub(crate) lanes: Option<usize>,
    /// Isolation between tenants. With shared, a lane process clears the memory before the next tenant. With
    /// tenant, a new process is started [default: shared]
    #[arg(long, value_name = "KIND", value_parser = isolation)]
    pub(crate) isolation: Option<Isolation>,
    /// Refuse to start if the kernel or the container does not support Landlock and seccomp, which confine
    /// lanes and guest compilers
    #[arg(long)]
    pub(crate) require_walls: bool,
    /// Check the settings and the files of the host, and exit without starting it
    #[arg(long)]
    pub(crate) check: bool,
    /// Serve only this user: any data root, models up to 2 GiB, and a local directory that is removed when the
    /// host stops
    #[arg(long, hide = true)]
    pub(crate) embedded: bool,
}

fn isolation(text: &str) -> Result<Isolation, String> {
    match text {
        "shared" => Ok(Isolation::Shared),
        "tenant" => Ok(Isolation::Tenant),
        _ => Err("expected shared or tenant".to_owned()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuestCommand {
    #[command(flatten)]
    Authoring(Authoring),
    /// Upload a guest
    #[command(
        after_help = "Example:\n  frostline guest push mine guest.wasm --host http://store:8080 --token-file token"
    )]
    Push {
        /// Guest name: `[a-z0-9][a-z0-9._-]{0,62}`
        name: String,
        /// Component, or core module for wasm32-unknown-unknown
        file: PathBuf,
        #[command(flatten)]
        host: RemoteHost,
    },
    /// List the guests on a host
    #[command(after_help = "Example:\n  frostline guest list --host http://store:8080 --token-file token")]
    List {
        #[command(flatten)]
        host: RemoteHost,
    },
    /// Remove a guest including all versions
    #[command(
        after_help = "Example:\n  frostline guest remove mine --host http://store:8080 --token-file token"
    )]
    Remove {
        /// Name of the guest
        name: String,
        #[command(flatten)]
        host: RemoteHost,
    },
    /// Show the log of one of your guests for the last hour
    ///
    /// Each host keeps 1 MiB of log lines per tenant.
    #[command(after_help = "\
Examples:
  frostline guest logs mine --host https://store:8443 --token-file token
  frostline guest logs mine --follow --hosts dns://frostline.storage:8443 --token-file token")]
    Logs {
        /// Name of the guest
        name: String,
        /// Follow the log until Ctrl-C
        #[arg(long, short)]
        follow: bool,
        #[command(flatten)]
        hosts: RemoteHosts,
    },
    /// Show one guest
    #[command(
        after_help = "Example:\n  frostline guest show prefix --host http://store:8080 --token-file token"
    )]
    Show {
        /// Name of the guest: NAME, NAME:latest or NAME@sha256:HEX
        name: String,
        #[command(flatten)]
        host: RemoteHost,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Show the cuts of a model
    ///
    /// The columns are name, module, shape, bytes per image, share of compute, whether the following layers
    /// can be trained, and whether a host accepts the preceding layers.
    #[command(after_help = "\
Examples:
  frostline model show squeezenet1_1.onnx
  frostline model show squeezenet1_1 --host http://store:8080 --token-file token")]
    Show {
        /// ONNX file, or the name of an uploaded model if --host is set
        model: String,
        #[command(flatten)]
        interface: InterfaceFlags,
        #[command(flatten)]
        host: HostFlags,
    },
    /// Quantize a network's layers up to a cut to int8
    ///
    /// Calibrates on 32 images and compares the result with f32 on 16 other images. The output is a regular
    /// ONNX file, so you can extract features from it, train the layers behind the cut, or use other tools.
    #[command(after_help = "\
Examples:
  frostline model quantize resnet18.onnx --freeze layer4.0 --data ./photos --out resnet18-int8.onnx
  frostline model quantize vit.onnx --data s3://photos/clothing --host http://store:8080 --token-file token --out vit-int8.onnx")]
    Quantize(Box<QuantizeFlags>),
    /// List your models on a host and the shared models
    #[command(after_help = "Example:\n  frostline model list --host http://store:8080 --token-file token")]
    List {
        #[command(flatten)]
        host: RemoteHost,
    },
}

/// Arguments of `frostline model quantize`.
#[derive(Debug, Args)]
pub(crate) struct QuantizeFlags {
    /// ONNX file of the network
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) interface: InterfaceFlags,
    /// Location of the labeled or unlabeled images (path, file://, s3://bucket/prefix, gs://, az:// or
    /// https://)
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Layout of the images
    #[arg(long, default_value = "auto", value_parser = named::<Layout>())]
    pub(crate) layout: Layout,
    /// Output file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Quantize the layers up to this cut [default: the last cut before the classifier]
    #[arg(long, value_name = "CUT")]
    pub(crate) freeze: Option<String>,
    /// int8 fails if the result is too imprecise. auto writes f32 if int8 is too imprecise or less than 1.1
    /// times as fast on this machine
    #[arg(long, default_value = "int8", value_parser = named::<PrefixPrecision>())]
    pub(crate) prefix_precision: PrefixPrecision,
    /// Accept int8 with a cosine similarity to f32 below 0.99
    #[arg(long)]
    pub(crate) allow_imprecise: bool,
    /// Number of compute threads (0 uses all cores)
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) pixels: GivenFlags<PixelFlags>,
    #[command(flatten)]
    pub(crate) host: HostList,
}

/// Selects a running host or an embedded host.
#[derive(Debug, Args)]
pub(crate) struct HostFlags {
    /// URL of a storage host. Without this flag, a host is started inside this process
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub(crate) host: Option<String>,
    /// File with the token for the host
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file for https hosts instead of the system's
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) ca: Option<PathBuf>,
}

/// Selects one or more running hosts.
#[derive(Debug, Args)]
pub(crate) struct RemoteHosts {
    /// URL of a storage host (may be repeated). Use dns://name:8443 (or dns+http:// without TLS) for all
    /// addresses that DNS returns
    #[arg(long, visible_alias = "hosts", value_name = "URL", required = true)]
    pub(crate) host: Vec<String>,
    /// File with the token for the hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Trust the certificates in this PEM file for https hosts instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

/// Selects a running host.
#[derive(Debug, Args)]
pub(crate) struct RemoteHost {
    /// URL of the storage host
    #[arg(long, value_name = "URL")]
    pub(crate) host: String,
    /// File with the token for the host
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Trust the certificates in this PEM file for https hosts instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

impl HostFlags {
    pub(crate) fn access(&self) -> HostAccess<'_> {
        HostAccess::running(
            self.host.as_slice(),
            self.token_file.as_deref(),
            self.ca.as_deref(),
        )
    }
}

impl RemoteHosts {
    pub(crate) fn access(&self) -> HostAccess<'_> {
        HostAccess::running(&self.host, Some(&self.token_file), self.ca.as_deref())
    }
}

impl RemoteHost {
    pub(crate) fn access(&self) -> HostAccess<'_> {
        let host = std::slice::from_ref(&self.host);
        HostAccess::running(host, Some(&self.token_file), self.ca.as_deref())
    }
}
