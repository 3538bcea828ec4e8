//! Python packages for tests and benchmarks, kept below the build folder.

use crate::workspace::{root, run, target};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// Installs `tests/requirements.txt` into `target/python` unless it is there, and returns that folder, for `PYTHONPATH`.
pub(crate) fn ensure() -> Result<PathBuf> {
    let requirements = root().join("tests/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let folder = target().join("python");
    let marker = folder.join("installed-requirements.txt");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    eprintln!("installing Python packages for tests into {}", folder.display());
    pip(&["install", "--upgrade", "--target"])
        .arg(&folder)
        .arg("--requirement")
        .arg(&requirements)
        .status()
        .context("cannot start `python3 -m pip`: install Python 3 with pip")?
        .success()
        .then_some(())
        .context("pip could not install tests/requirements.txt; its own words are above")?;
    std::fs::write(&marker, wanted)?;
    Ok(folder)
}

/// `python3 -m pip` with `arguments`, quiet and never asking.
pub(crate) fn pip(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .args([
            "-m",
            "pip",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ])
        .args(arguments);
    command
}

/// Unpacks a wheel, which is a zip file, into `folder`.
pub(crate) fn unpack(wheel: &std::path::Path, folder: &std::path::Path) -> Result<()> {
    run(Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(folder))
}
