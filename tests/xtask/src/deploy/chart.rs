//! The chart: linted, rendered with each file of values in its folder `ci`, validated by Kubernetes' schemas; what no host could start
//! with is refused.

use super::tools::{chart, helm, render};
use super::{Outcome, Setup, python_path};
use crate::workspace::{output, root, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest that `kubeVersion` allows, one in the middle, and the newest that there are schemas of.
const VERSIONS: &str = "1.27,1.31,1.37";

/// Values that must be refused, and a word of the reason.
const REFUSED: [(&str, &[&str], &str); 8] = [
    ("no state", &["config.state="], "state"),
    (
        "a folder as shared state",
        &["config.state=/var/lib/state"],
        "state",
    ),
    ("no TLS at all", &["tls.plainHttp=false"], "tls.secret"),
    ("two ways of TLS", &["tls.secret=mine"], "tls.secret"),
    (
        "admins without TLS",
        &["admin.enabled=true", "admin.secret=x"],
        "TLS",
    ),
    ("a key of the chart's", &["config.listen=0.0.0.0:1"], "listen"),
    (
        "scaled nodes",
        &["kind=DaemonSet", "autoscaling.enabled=true"],
        "DaemonSet",
    ),
    ("a value nobody knows", &["replicaCount=3"], "replicaCount"),
];

pub(super) fn check(setup: &Setup) -> Result<Outcome> {
    let (helm, path) = match (helm(), python_path()) {
        (Ok(helm), Ok(path)) => (helm, path),
        (Err(why), _) | (_, Err(why)) => return Ok(Outcome::Skipped(why)),
    };
    let rendered = setup.folder.join("rendered");
    fs::create_dir_all(&rendered)?;
    let mut files = Vec::new();
    for values in values()? {
        run(Command::new(&helm)
            .args(["lint", "--strict", "--quiet"])
            .arg(chart())
            .arg("--values")
            .arg(&values))?;
        let file = rendered.join(values.file_name().context("values without a name")?);
        fs::write(&file, render(&helm, &[&values])?)?;
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
    refusals(&helm)?;
    Ok(Outcome::Passed(format!(
        "linted, rendered with {} files of values and validated for Kubernetes {VERSIONS}: {}; {} wrong values refused",
        files.len(),
        validated.trim(),
        REFUSED.len()
    )))
}

/// The files of values in the chart's folder `ci`.
pub(super) fn values() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(chart().join("ci"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    Ok(files)
}

fn refusals(helm: &Path) -> Result<()> {
    let values = chart().join("ci/least-values.yaml");
    for (what, settings, reason) in REFUSED {
        let mut command = Command::new(helm);
        command
            .args(["template", "demo"])
            .arg(chart())
            .arg("--values")
            .arg(&values);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let tried = command.output()?;
        let words = String::from_utf8_lossy(&tried.stderr);
        if tried.status.success() || !words.contains(reason) {
            bail!("the chart has to refuse {what} and say {reason:?}; it said: {words}");
        }
    }
    Ok(())
}
