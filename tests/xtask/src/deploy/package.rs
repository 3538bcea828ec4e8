//! Checks the Debian package with lintian and the systemd unit with systemd-analyze.

use super::{CheckResult, Setup};
use crate::workspace::{missing, output, root};
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::Command;

/// Maximum exposure level of the unit as rated by systemd, from 0 to 10.
const MAX_EXPOSURE: f64 = 1.5;

/// Checks the package with lintian.
pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    if let Some(why) = missing(&[("lintian", "lintian")]) {
        return Ok(CheckResult::Skipped(why));
    }
    // The spelling check of binaries doubles the time and only reports informational tags.
    let lint = Command::new("lintian")
        .args([
            "--fail-on",
            "error,warning",
            "--dont-check-part",
            "binaries/spelling",
        ])
        .args(["--tag-display-limit", "0", "--allow-root"])
        .arg(setup.artifact("deb")?)
        .output()?;
    if !lint.status.success() {
        bail!("lintian: {}", String::from_utf8_lossy(&lint.stdout));
    }
    Ok(CheckResult::Passed("no errors or warnings by lintian".to_owned()))
}

/// Checks that systemd accepts the unit with the program of this build, and rates its exposure no higher than
/// [`MAX_EXPOSURE`].
pub(super) fn check_unit(setup: &Setup) -> Result<CheckResult> {
    if let Some(why) = missing(&[("systemd-analyze", "systemd")]) {
        return Ok(CheckResult::Skipped(why));
    }
    let unit = root().join("runtime/deploy/deb/frostline.service");
    let text = fs::read_to_string(&unit)?;
    let program = setup
        .frostline
        .to_str()
        .context("the path of the program is not UTF-8")?;
    fs::create_dir_all(setup.folder.join("unit"))?;
    let installed = setup.folder.join("unit/frostline.service");
    fs::write(&installed, text.replace("/usr/bin/frostline", program))?;
    output(
        Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&installed),
    )?;
    let report = output(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(&unit),
    )?;
    let line = report
        .lines()
        .rev()
        .find(|line| line.contains("Overall exposure level"));
    let level = line.and_then(|line| line.split_whitespace().find_map(|word| word.parse::<f64>().ok()));
    let level = level.context("systemd-analyze printed no exposure level")?;
    if level > MAX_EXPOSURE {
        bail!("the unit's exposure is {level}, limit {MAX_EXPOSURE}:\n{report}");
    }
    Ok(CheckResult::Passed(format!(
        "accepted by systemd-analyze verify, exposure {level} of 10 by systemd-analyze security"
    )))
}
