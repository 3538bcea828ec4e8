//! Checks the Prometheus rules and runs their tests.

use super::tools::chart;
use super::{CheckResult, Setup};
use crate::workspace::{missing, output, root, target};
use anyhow::{Context, Result};
use std::process::Command;

pub(super) fn check(_: &Setup) -> Result<CheckResult> {
    if let Some(why) = missing(&[("promtool", "prometheus")]) {
        return Ok(CheckResult::Skipped(why));
    }
    let rules = chart().join("files/rules.yaml");
    let checked = output(Command::new("promtool").args(["check", "rules"]).arg(&rules))?;
    let summary = checked.lines().find(|line| line.contains("SUCCESS"));
    let summary = summary.context("promtool found no rules")?.trim().to_owned();
    let tests = chart().with_file_name("rules-test.yaml");
    output(Command::new("promtool").args(["test", "rules"]).arg(tests))?;
    let folder = target().join("deploy/rules");
    std::fs::create_dir_all(&folder)?;
    let config = folder.join("prometheus.yml");
    std::fs::copy(root().join("runtime/deploy/deb/prometheus.yml"), &config)?;
    std::fs::copy(&rules, folder.join("rules.yaml"))?;
    output(Command::new("promtool").args(["check", "config"]).arg(&config))?;
    Ok(CheckResult::Passed(format!(
        "{summary}, rule tests passed, configuration is valid"
    )))
}
