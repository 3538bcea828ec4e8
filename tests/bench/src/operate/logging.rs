//! A host whose log is measured, and how hard it is asked.

use crate::report::Report;
use crate::run::{binary, text};
use anyhow::Result;
use frostline_e2e::HostProcess;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Clients that ask at once.
pub(super) const CLIENTS: usize = 8;

/// How long they do.
pub(super) const TIME: Duration = Duration::from_secs(10);

/// A host over the photos, and the file that it logs to as it does by default.
pub(super) fn logging_host(report: &Report, folder: &Path) -> Result<(HostProcess, PathBuf)> {
    let log = folder.join("log");
    // Without this it is started more quietly here.
    let mut command = Command::new("env");
    command.arg("RUST_LOG=warn,frostline_server=info").arg(binary()?);
    command.stderr(File::create(&log)?);
    let photos = report.photos().part("train");
    let host = HostProcess::start_as(command, folder, text(&photos)?, &[])?;
    Ok((host, log))
}
