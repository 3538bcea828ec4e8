//! Runs a host in the OCI image.

use super::tools::{chart, documents, helm, manifest, render};
use super::{CheckResult, Setup, python_path};
use crate::workspace::{missing, output, run};
use anyhow::{Context, Result};
use frostline_e2e::HostProcess;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Enters the image like a pod: with a read-only root, the chart's volumes, and the image's user.
const POD: &str = "\
set -eu
mount --bind \"$1\" \"$1\"
mount -t tmpfs -o mode=2777 local \"$1/var/lib/frostline\"
mount --bind \"$2\" \"$1/etc/frostline\"
mount -t proc proc \"$1/proc\"
mount --bind /dev \"$1/dev\"
mount -o remount,ro,bind \"$1\"
shift 2
exec chroot --userspec=65532:65532 \"$@\"";

/// Starts a host in the image with the rendered configuration and queries it.
pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    if let Some(why) = missing(&[("curl", "curl"), ("unshare", "util-linux")]) {
        return Ok(CheckResult::Skipped(why));
    }
    let helm = match (helm(), python_path()) {
        (Ok(helm), Ok(_)) => helm,
        (Err(why), _) | (_, Err(why)) => return Ok(CheckResult::Skipped(why)),
    };
    let image = setup.folder.join("image");
    let bundle = setup.folder.join("bundle");
    for folder in [&image, &bundle] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir_all(&image)?;
    run(Command::new("tar")
        .arg("--extract")
        .arg("--file")
        .arg(setup.artifact("image")?)
        .arg("--directory")
        .arg(&image))?;
    let tag = format!("{}:latest", image.display());
    output(
        Command::new("umoci")
            .args(["unpack", "--image", &tag])
            .arg(&bundle),
    )?;
    let config: Value = serde_json::from_str(&fs::read_to_string(bundle.join("config.json"))?)?;
    let answered = start(setup, &helm, &bundle, &config)?;
    fs::remove_dir_all(&bundle)?;
    Ok(CheckResult::Passed(format!(
        "a host started in its read-only root as user 65532 with the rendered configuration: {answered}"
    )))
}

fn start(setup: &Setup, helm: &Path, bundle: &Path, config: &Value) -> Result<String> {
    let (tenants, metrics) = (super::live::free_address()?, super::live::free_address()?);
    let values = json!({
        "config": {"state": "gs://frostline/state"},
        "ports": {"tenants": tenants.port(), "metrics": metrics.port()},
    });
    let file = setup.folder.join("image-values.json");
    fs::write(&file, values.to_string())?;
    let rendered = documents(&render(
        setup.artifact("chart")?,
        helm,
        &[&chart().join("ci/minimal-values.yaml"), &file],
    )?)?;
    let mounted = setup.folder.join("image-etc");
    let _ = fs::remove_dir_all(&mounted);
    fs::create_dir_all(mounted.join("token"))?;
    let written = manifest(&rendered, "ConfigMap", "frostline")?.pointer("/data/host.toml");
    let written = written
        .and_then(Value::as_str)
        .context("the chart rendered no host.toml")?;
    // No object store is reachable, so state and data are folders.
    let written = written
        .replace("gs://frostline/state", "/var/lib/frostline/state")
        .replace("gs://frostline/photos", "/var/lib");
    fs::write(mounted.join("host.toml"), written.replace("0.0.0.0", "127.0.0.1"))?;
    fs::write(mounted.join("token/token"), format!("{}\n", "t".repeat(64)))?;
    let container = manifest(&rendered, "StatefulSet", "frostline")?
        .pointer("/spec/template/spec/containers/0/args")
        .and_then(Value::as_array)
        .context("the container has no arguments")?;
    let process = config
        .pointer("/process/args")
        .and_then(Value::as_array)
        .context("the image has no entry point")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", POD, "pod"]);
    command
        .arg(bundle.join("rootfs"))
        .arg(&mounted)
        .arg(bundle.join("rootfs"));
    // A container's arguments replace those of the image but not the entry point.
    for word in process.iter().take(1).chain(container) {
        command.arg(word.as_str().unwrap_or_default());
    }
    let host = HostProcess::spawn(command, mounted.join("token/token"))
        .context("the host did not start in the image")?;
    let query = |path: &str| {
        output(Command::new("curl").args(["--silent", "--fail", &format!("http://{metrics}{path}")]))
    };
    query("/healthz")?;
    query("/readyz")?;
    let listed = output(
        Command::new(&setup.frostline)
            .args(["guest", "list", "--json", "--host", &host.url(), "--token-file"])
            .arg(mounted.join("token/token")),
    )?;
    let metrics = query("/metrics")?;
    let library = metrics
        .lines()
        .find(|line| line.starts_with("frostline_build_info"))
        .unwrap_or_default();
    Ok(format!(
        "/readyz, {} guests listed, {library}",
        listed.lines().count()
    ))
}
