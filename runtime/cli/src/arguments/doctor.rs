use clap::Args;
use frostline_engine::Device;
use frostline_job::HostList;
use std::path::PathBuf;

/// Check this machine, a host or a configuration, and suggest fixes
///
/// Runs a network with ONNX Runtime on this machine, including the GPU if --device names a GPU. With --host,
/// checks the token, TLS, the link and access to the data in the same way as a job. With --config, checks the
/// requirements of a host with this configuration on this machine. Changes nothing. The exit code is 0 if no
/// check fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline doctor
  frostline doctor --host https://store:8443 --token-file token --data s3://photos/clothing
  frostline doctor --config /etc/frostline/host.toml --device cuda:0")]
pub(crate) struct DoctorFlags {
    #[command(flatten)]
    pub(crate) host: HostList,
    /// Check access to these images from the hosts, or from this machine without --host
    #[arg(long, value_name = "URL")]
    pub(crate) data: Option<String>,
    /// A host's configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check this device (cpu or cuda:0)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<Device>,
}
