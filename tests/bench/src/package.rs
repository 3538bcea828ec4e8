//! The Python package as it is installed, for interpreters that have PyTorch.

use crate::run::binary;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The package, unpacked into a folder that goes with it.
pub(crate) struct Package {
    folder: TempDir,
}

/// The wheel that `cargo xtask bench` built for release.
pub(crate) fn wheel() -> Result<OsString> {
    std::env::var_os("FROSTLINE_WHEEL")
        .context("FROSTLINE_WHEEL is not set: run this through `cargo xtask bench`")
}

/// Unpacks the wheel.
///
/// # Errors
/// When there is none, or it is broken.
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
    /// Has a program find the package, and the command that was built with this benchmark.
    pub(crate) fn known_to<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let beside = binary()?.parent().map(PathBuf::from).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(beside).chain(std::env::split_paths(&path)))?;
        Ok(command.env("PYTHONPATH", self.folder.path()).env("PATH", path))
    }
}
