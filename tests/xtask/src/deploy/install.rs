//! Installs the tarball, the wheel and the Debian package in a clean Debian system.

use super::{CheckResult, Setup};
use crate::dist::suite;
use crate::workspace::{is_root, missing, output, root};
use anyhow::Result;
use std::fs;
use std::process::Command;

/// Runs a command with `TMPDIR` in memory. dpkg is twice as fast there as on disk.
const IN_MEMORY: &str = "\
set -eu
mount -t tmpfs tmpfs \"$1\"
export TMPDIR=\"$1\"
shift
exec \"$@\"";

pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    if let Some(why) = missing(&[("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux")]) {
        return Ok(CheckResult::Skipped(why));
    }
    if !is_root() {
        return Ok(CheckResult::Skipped(
            "creating a clean Debian needs root".to_owned(),
        ));
    }
    let memory = setup.folder.join("memory");
    fs::create_dir_all(&memory)?;
    let script = root().join("tests/xtask/src/deploy/install.sh");
    let mut words = vec!["sh".to_owned()];
    let files = [
        &script,
        setup.artifact("tarball")?,
        setup.artifact("wheel")?,
        setup.artifact("deb")?,
    ];
    words.extend(files.map(|file| format!("'{}'", file.display())));
    words.push("\"$1\"".to_owned());
    output(
        Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                IN_MEMORY,
                "debian",
            ])
            .arg(&memory)
            .args(["mmdebstrap", "--variant=apt", "--include=python3,systemd"])
            .arg(format!("--customize-hook={}", words.join(" ")))
            .args([&suite()?, "/dev/null"]),
    )?;
    Ok(CheckResult::Passed(
        "installed tarball, wheel and package in a clean Debian, found ONNX Runtime with each, and purged the package"
            .to_owned(),
    ))
}
