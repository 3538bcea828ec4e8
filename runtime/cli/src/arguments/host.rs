//! Commands that run a host or look after one, and how any command names its hosts.

use super::guest::Authoring;
use super::quantize::Quantize;
use crate::host::Access;
use clap::{Args, Subcommand};
use frostline_server::Isolation;
use frostline_wire::{parse_seconds_or_number as drain_seconds, parse_size as size};
use std::path::PathBuf;

/// Run a storage host
///
/// Every flag can stand in the configuration file; a flag given here wins. The tenant's token is read from the token file,
/// which is created on the first start.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline serve --config host.toml
  frostline serve --data s3://photos/acme --state /var/lib/frostline --token-file /etc/frostline/token --listen 127.0.0.1:8080
  frostline serve --config host.toml --listen 0.0.0.0:7433 --tls-certificate cert.pem --tls-key key.pem")]
pub(crate) struct Serve {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// A data root the tenant may read; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) data: Vec<String>,
    /// Where guests and models are kept: a directory, or s3://bucket/prefix; hosts with the same state serve the same ones
    #[arg(long, value_name = "URL")]
    pub(crate) state: Option<String>,
    /// A directory of this host alone, for compiled guests, uploads on their way and profiles; by default --state, if that is one
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) local: Option<PathBuf>,
    /// The host's certificate in PEM, which is read again when it changes; without it the host speaks plain HTTP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// What the host calls itself, where its address may change: clients that find hosts by DNS place objects by it [default: the host name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The socket of `frostline admin`; by default admin.sock in the local directory
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_socket: Option<PathBuf>,
    /// Address to listen on for `frostline admin --host`, over TLS; by default there is none
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin_listen: Option<String>,
    /// The token of `frostline admin --host`; by default admin-token in the local directory
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// The token of those who look by `frostline admin --host` and change nothing; by default there is none
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_read_token_file: Option<PathBuf>,
    /// Address where /metrics has tenants' names too, without a token: 127.0.0.1:7435, or http://0.0.0.0:7435 for plain HTTP although the
    /// host has a certificate; by default there is none
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<String>,
    /// The tenant's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Memory that the host and its lanes may hold together, such as 4GiB [default: 80 % of what the memory cgroup, else the machine, has]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) memory_budget: Option<u64>,
    /// Seconds that running extractions may take to finish after SIGTERM or Ctrl-C; a second one ends the host at once [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = drain_seconds)]
    pub(crate) drain: Option<u64>,
    /// Where networks run: cpu or cuda:0
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Memory of a GPU that lanes may hold, such as 8GiB [default: nine tenths of what is free]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) device_memory_budget: Option<u64>,
    /// Engine worker threads
    #[arg(long)]
    pub(crate) lanes: Option<usize>,
    /// What a lane keeps from one tenant to the next: shared keeps its process and clears memory, tenant starts another process [default: shared]
    #[arg(long, value_name = "KIND", value_parser = isolation)]
    pub(crate) isolation: Option<Isolation>,
    /// Refuse to start where the kernel, or the container, lacks Landlock or seccomp, which confine lanes and the compiler of guests
    #[arg(long)]
    pub(crate) require_walls: bool,
    /// Remove the directory of --local, or of --state, at the end
    #[arg(long, hide = true)]
    pub(crate) ephemeral: bool,
}

fn isolation(text: &str) -> Result<Isolation, String> {
    match text {
        "shared" => Ok(Isolation::Shared),
        "tenant" => Ok(Isolation::Tenant),
        _ => Err("it must be shared or tenant".to_owned()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Guest {
    #[command(flatten)]
    Authoring(Authoring),
    /// Upload a guest
    #[command(
        after_help = "Example:\n  frostline guest push mine guest.wasm --host http://store:8080 --token-file token"
    )]
    Push {
        /// Its name on the host: [a-z0-9][a-z0-9._-]{0,62}
        name: String,
        /// A component, or a core module from wasm32-unknown-unknown
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
    /// Remove a guest, all its versions
    #[command(
        after_help = "Example:\n  frostline guest remove mine --host http://store:8080 --token-file token"
    )]
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        host: RemoteHost,
    },
    /// Show what a guest of yours logged in the last hour
    ///
    /// Each host keeps 1 MiB of a tenant's lines.
    #[command(after_help = "\
Examples:
  frostline guest logs mine --host https://store:8443 --token-file token
  frostline guest logs mine --follow --hosts dns://frostline.storage:8443 --token-file token")]
    Logs {
        /// Its name
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
        /// Its name, NAME:latest or NAME@sha256:HEX
        name: String,
        #[command(flatten)]
        host: RemoteHost,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Show a model's cuts: name, module, shape, bytes per image, share of compute, whether the layers behind can be trained and a host takes
    /// those before
    #[command(after_help = "\
Examples:
  frostline model show squeezenet1_1.onnx
  frostline model show squeezenet1_1 --host http://store:8080 --token-file token")]
    Show {
        /// An ONNX file, or with --host a model's name there
        model: String,
        #[command(flatten)]
        host: HostFlags,
    },
    /// Quantize a network's layers up to a cut to int8
    ///
    /// Calibrates on 32 images and compares the result with f32 on 16 others. The file is ordinary ONNX: extract from it, train behind the cut,
    /// or run it elsewhere.
    #[command(after_help = "\
Examples:
  frostline model quantize resnet18.onnx --freeze layer4.0 --data ./photos --out resnet18-int8.onnx
  frostline model quantize vit.onnx --data s3://photos/clothing --host http://store:8080 --token-file token --out vit-int8.onnx")]
    Quantize(Box<Quantize>),
    /// List the models on a host: your own, and those that all tenants share
    #[command(after_help = "Example:\n  frostline model list --host http://store:8080 --token-file token")]
    List {
        #[command(flatten)]
        host: RemoteHost,
    },
}

/// A running host, or none.
#[derive(Debug, Args)]
pub(crate) struct HostFlags {
    /// A running storage host; without it one is started inside this process
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub(crate) host: Option<String>,
    /// File with the token for the host
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificates, in PEM, that an https host is to be trusted by; by default those the system trusts
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) ca: Option<PathBuf>,
}

/// Running hosts.
#[derive(Debug, Args)]
pub(crate) struct RemoteHosts {
    /// A storage host; may be repeated. dns://name:8443 (dns+http:// without TLS) stands for all addresses of a name
    #[arg(long, visible_alias = "hosts", value_name = "URL", required = true)]
    pub(crate) host: Vec<String>,
    /// File with the token for the hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// File with the certificates, in PEM, that an https host is to be trusted by; by default those the system trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

/// A running host.
#[derive(Debug, Args)]
pub(crate) struct RemoteHost {
    /// The storage host
    #[arg(long, value_name = "URL")]
    pub(crate) host: String,
    /// File with the token for the host
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// File with the certificates, in PEM, that an https host is to be trusted by; by default those the system trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

impl HostFlags {
    pub(crate) fn access(&self) -> Access<'_> {
        Access {
            urls: self.host.as_slice(),
            token_file: self.token_file.as_deref(),
            ca: self.ca.as_deref(),
            follow_links: None,
        }
    }
}

impl RemoteHosts {
    pub(crate) fn access(&self) -> Access<'_> {
        Access {
            urls: &self.host,
            token_file: Some(&self.token_file),
            ca: self.ca.as_deref(),
            follow_links: None,
        }
    }
}

impl RemoteHost {
    pub(crate) fn access(&self) -> Access<'_> {
        Access {
            urls: std::slice::from_ref(&self.host),
            token_file: Some(&self.token_file),
            ca: self.ca.as_deref(),
            follow_links: None,
        }
    }
}
