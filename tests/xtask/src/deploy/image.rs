//! The OCI image: Debian's libraries and certificates and the command of the package; written without a daemon.

use super::tools::{chart, documents, helm, is_root, manifest, missing, render};
use super::{CheckResult, Setup, package, python_path};
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOOLS: [(&str, &str); 2] = [("mmdebstrap", "mmdebstrap"), ("umoci", "umoci")];

/// The Debian release of this machine, so that programs linked here run in the image.
pub(super) fn suite() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release")?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name
        .context("no VERSION_CODENAME in /etc/os-release")?
        .trim_matches('"')
        .to_owned())
}

/// Writes the image, an OCI layout, and returns its folder.
pub(super) fn build(setup: &Setup) -> Result<PathBuf> {
    if let Some(why) = missing(&TOOLS) {
        bail!("{why}");
    }
    let image = setup.folder.join("image");
    let _ = fs::remove_dir_all(&image);
    output(
        Command::new("sh")
            .env(package::EPOCH, package::epoch()?)
            .arg(root().join("runtime/deploy/image/build.sh"))
            .arg(suite()?)
            .arg(package::build(setup)?)
            .arg(&image),
    )?;
    Ok(image)
}

/// Enters the image as a pod does: root read-only, the chart's user, its volumes mounted.
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

/// Starts a host in the image's root with what the chart rendered, and queries it.
pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    let programs = [&TOOLS[..], &[("curl", "curl"), ("unshare", "util-linux")]].concat();
    if let Some(why) = missing(&programs) {
        return Ok(CheckResult::Skipped(why));
    }
    if !is_root() {
        return Ok(CheckResult::Skipped(
            "building and entering the image needs root".to_owned(),
        ));
    }
    let helm = match (helm(), python_path()) {
        (Ok(helm), Ok(_)) => helm,
        (Err(why), _) | (_, Err(why)) => return Ok(CheckResult::Skipped(why)),
    };
    let image = build(setup)?;
    let first = fs::read(image.join("index.json"))?;
    if fs::read(build(setup)?.join("index.json"))? != first {
        bail!("the image built twice differs");
    }
    let bundle = setup.folder.join("bundle");
    let _ = fs::remove_dir_all(&bundle);
    let tag = format!("{}:latest", image.display());
    output(
        Command::new("umoci")
            .args(["unpack", "--image", &tag])
            .arg(&bundle),
    )?;
    let config: Value = serde_json::from_str(&fs::read_to_string(bundle.join("config.json"))?)?;
    let answered = start(setup, &helm, &bundle, &config)?;
    fs::remove_dir_all(&bundle)?;
    let bytes = output(Command::new("du").args(["--summarize", "--bytes"]).arg(&image))?;
    let bytes: f64 = bytes.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(CheckResult::Passed(format!(
        "{:.0} MB, equal when built twice; a host started in its read-only root as user 65532 with the rendered configuration: {answered}",
        bytes / 1e6
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
    let rendered = documents(&render(helm, &[&chart().join("ci/least-values.yaml"), &file])?)?;
    let mounted = setup.folder.join("image-etc");
    let _ = fs::remove_dir_all(&mounted);
    fs::create_dir_all(mounted.join("token"))?;
    let written = manifest(&rendered, "ConfigMap", "frostline")?.pointer("/data/host.toml");
    let written = written
        .and_then(Value::as_str)
        .context("the chart rendered no host.toml")?;
    // Inside there is no object store: state and data are folders.
    let written = written
        .replace("gs://frostline/state", "/var/lib/frostline/state")
        .replace("gs://frostline/photos", "/var/lib");
    fs::write(mounted.join("host.toml"), written.replace("0.0.0.0", "127.0.0.1"))?;
    fs::write(mounted.join("token/token"), format!("{}\n", "t".repeat(64)))?;
    let container = manifest(&rendered, "StatefulSet", "frostline")?
        .pointer("/spec/template/spec/containers/0/args")
        .and_then(Value::as_array)
        .context("a container without arguments")?;
    let process = config
        .pointer("/process/args")
        .and_then(Value::as_array)
        .context("an image without an entry point")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", POD, "pod"]);
    command
        .arg(bundle.join("rootfs"))
        .arg(&mounted)
        .arg(bundle.join("rootfs"));
    // A container's arguments replace the image's own after the entry point.
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
        "/readyz, a list of {} guests, {library}",
        listed.lines().count()
    ))
}
