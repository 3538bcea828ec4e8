use clap::Args;
use frostline_engine::Device;
use frostline_job::HostList;
use std::path::PathBuf;

/// Check this machine, a host or a configuration, and say how to fix what fails
///
/// The library and a GPU are tried on this machine. With --host the token, TLS, the link and what the host reads are, as a job would use
/// them; with --config what a host with this configuration needs here. Nothing is changed. The exit code is 0 when nothing fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline doctor
  frostline doctor --host https://store:8443 --token-file token --data s3://photos/clothing
  frostline doctor --config /etc/frostline/host.toml --device cuda:0")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) host: HostList,
    /// Images, as train takes them: read by the hosts, or without any from here
    #[arg(long, value_name = "URL")]
    pub(crate) data: Option<String>,
    /// A host's configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A device that has to work: cpu or cuda:0
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<Device>,
}
