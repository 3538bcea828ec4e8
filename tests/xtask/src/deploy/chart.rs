//! Checks the chart archive: lints it, renders it with each values file in the chart's folder `ci`, validates
//! the manifests against the schemas of Kubernetes, and verifies that invalid values are refused.

use super::tools::{chart, helm, render};
use super::{CheckResult, Setup, python_path};
use crate::workspace::{output, root, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kubernetes versions to validate for: the oldest that `kubeVersion` allows, one in the middle, and the
/// newest with a schema.
const VERSIONS: &str = "1.27,1.31,1.37";

/// Invalid settings with an expected word in the error.
const REFUSED: [(&str, &[&str], &str); 8] = [
    ("no state", &["config.state="], "state"),
    (
        "local folder for shared state",
        &["config.state=/var/lib/state"],
        "state",
    ),
    ("missing TLS secret", &["tls.plainHttp=false"], "tls.secret"),
    ("two TLS sources", &["tls.secret=mine"], "tls.secret"),
    (
        "admins without TLS",
        &["admin.enabled=true", "admin.secret=x"],
        "TLS",
    ),
    (
        "a key that the chart sets",
        &["config.listen=0.0.0.0:1"],
        "listen",
    ),
    (
        "scaled nodes",
        &["kind=DaemonSet", "autoscaling.enabled=true"],
        "DaemonSet",
    ),
    ("an unknown value", &["replicaCount=3"], "replicaCount"),
];

pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    let (helm, path) = match (helm(), python_path()) {
        (Ok(helm), Ok(path)) => (helm, path),
        (Err(why), _) | (_, Err(why)) => return Ok(CheckResult::Skipped(why)),
    };
    let archive = setup.artifact("chart")?;
    let rendered = setup.folder.join("rendered");
    fs::create_dir_all(&rendered)?;
    let mut files = Vec::new();
    for values in values()? {
        run(Command::new(&helm)
            .args(["lint", "--strict", "--quiet"])
            .arg(archive)
            .arg("--values")
            .arg(&values))?;
        let file = rendered.join(values.file_name().context("invalid path of a values file")?);
        fs::write(&file, render(archive, &helm, &[&values])?)?;
        files.push(file);
    }
    let validated = output(
        Command::new("python3")
            .args(["-W", "ignore"])
            .arg(root().join("tests/xtask/src/deploy/validate.py"))
            .arg(VERSIONS)
            .args(&files)
            .env("PATH", path),
    )?;
    check_refusals(archive, &helm)?;
    Ok(CheckResult::Passed(format!(
        "linted, rendered with {} values files and validated for Kubernetes {VERSIONS}: {}; {} invalid settings refused",
        files.len(),
        validated.trim(),
        REFUSED.len()
    )))
}

/// Lists the values files in the chart's folder `ci`.
pub(super) fn values() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(chart().join("ci"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    Ok(files)
}

fn check_refusals(archive: &Path, helm: &Path) -> Result<()> {
    let values = chart().join("ci/minimal-values.yaml");
    for (what, settings, reason) in REFUSED {
        let mut command = Command::new(helm);
        command
            .args(["template", "demo"])
            .arg(archive)
            .arg("--values")
            .arg(&values);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let output = command.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !stderr.contains(reason) {
            bail!("the chart must refuse {what} with {reason:?}; its output: {stderr}");
        }
    }
    Ok(())
}
