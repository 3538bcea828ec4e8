//! The OCI image: Debian's libraries and certificates, the package's command, and nothing else; written without a daemon.

use super::tools::{chart, documents, helm, is_root, manifest, missing, render};
use super::{Outcome, Setup, package, python_path};
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOOLS: [(&str, &str); 2] = [("mmdebstrap", "mmdebstrap"), ("umoci", "umoci")];

/// The release of Debian that this machine has: what was linked here runs there.
pub(super) fn suite() -> Result<String> {
    let told = fs::read_to_string("/etc/os-release")?;
    let name = told
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name
        .context("/etc/os-release names no release")?
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
            .arg(root().join("runtime/deploy/image/build.sh"))
            .arg(suite()?)
            .arg(package::build(setup)?)
            .arg(&image),
    )?;
    Ok(image)
}

/// The image's root as a pod sees it: read-only, as the user of the chart, with the volumes it mounts.
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

/// A host starts in the image's root with just what the chart rendered, and answers.
pub(super) fn check(setup: &Setup) -> Result<Outcome> {
    let programs = [&TOOLS[..], &[("curl", "curl"), ("unshare", "util-linux")]].concat();
    if let Some(why) = missing(&programs) {
        return Ok(Outcome::Skipped(why));
    }
    if !is_root() {
        return Ok(Outcome::Skipped(
            "only root can build and enter the image's root here".to_owned(),
        ));
    }
    let helm = match (helm(), python_path()) {
        (Ok(helm), Ok(_)) => helm,
        (Err(why), _) | (_, Err(why)) => return Ok(Outcome::Skipped(why)),
    };
    let image = build(setup)?;
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
    Ok(Outcome::Passed(format!(
        "{:.0} MB; a host started in its root, read-only, as user 65532, with what the chart rendered: {answered}",
        bytes / 1e6
    )))
}

fn start(setup: &Setup, helm: &Path, bundle: &Path, config: &Value) -> Result<String> {
    let (tenants, metrics) = (super::live::free()?, super::live::free()?);
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
    let written = written.and_then(Value::as_str).context("no host.toml")?;
    // No store is at hand in here: state and data are folders.
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
    // A container's arguments take the place of the image's own, after the entry point.
    for word in process.iter().take(1).chain(container) {
        command.arg(word.as_str().unwrap_or_default());
    }
    let host = HostProcess::spawn(command, mounted.join("token/token"))
        .context("the image does not start a host")?;
    let asked = |path: &str| {
        output(Command::new("curl").args(["--silent", "--fail", &format!("http://{metrics}{path}")]))
    };
    asked("/healthz")?;
    asked("/readyz")?;
    let listed = output(
        Command::new(&setup.frostline)
            .args(["guest", "list", "--json", "--host", &host.url(), "--token-file"])
            .arg(mounted.join("token/token")),
    )?;
    let metrics = asked("/metrics")?;
    let library = metrics
        .lines()
        .find(|line| line.starts_with("frostline_build_info"))
        .unwrap_or_default();
    Ok(format!(
        "/readyz, a list of {} guests, {library}",
        listed.lines().count()
    ))
}
