//! Use of the Python package in interpreters with PyTorch.

use crate::run::binary;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The package, unpacked into a folder that is removed on drop.
pub(crate) struct Package {
    folder: TempDir,
}

/// Path of the wheel built by `cargo xtask bench`.
pub(crate) fn wheel() -> Result<OsString> {
    std::env::var_os("FROSTLINE_WHEEL")
        .context("FROSTLINE_WHEEL is not set; run this benchmark with `cargo xtask bench`")
}

/// Unpacks the wheel.
///
/// # Errors
/// Fails if the wheel is missing or cannot be unpacked.
pub(crate) fn unpacked() -> Result<Package> {
    let wheel = wheel()?;
    let folder = tempfile::tempdir()?;
    let status = Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .args([wheel.as_os_str(), folder.path().as_os_str()])
        .status()?;
    if !status.success() {
        bail!("cannot unpack {} ({status})", wheel.display());
    }
    Ok(Package { folder })
}

impl Package {
    /// Adds the package to the command's `PYTHONPATH`, and the folder of the `frostline` binary to its
    /// `PATH`.
    pub(crate) fn add_to_environment<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let beside = binary()?.parent().map(PathBuf::from).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(beside).chain(std::env::split_paths(&path)))?;
        Ok(command.env("PYTHONPATH", self.folder.path()).env("PATH", path))
    }
}
