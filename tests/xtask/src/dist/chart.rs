//! Packs the Helm chart archive. `helm package` is not used because it stores the current time.

use super::{Build, VERSION, archive};
use crate::workspace::{self, root};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn missing() -> Option<String> {
    workspace::missing(&archive::TOOLS)
}

pub(super) fn pack(build: &Build, to: &Path) -> Result<PathBuf> {
    let charts = root().join("runtime/deploy/helm");
    let description = fs::read_to_string(charts.join("frostline/Chart.yaml"))?;
    let version = format!("version: {VERSION}");
    if !description.lines().any(|line| line == version) {
        bail!(
            "runtime/deploy/helm/frostline/Chart.yaml must contain the line `{version}`, which matches Cargo.toml"
        );
    }
    let file = to.join(format!("frostline-{VERSION}.tgz"));
    // The checks' values files, also excluded by .helmignore.
    archive::write(build, &charts, &["--exclude=frostline/ci", "frostline"], &file)?;
    Ok(file)
}
