//! The rules by themselves: they are rules, and fire as their tests say.

use super::tools::{chart, missing};
use super::{Outcome, Setup};
use crate::workspace::output;
use anyhow::{Context, Result};
use std::process::Command;

pub(super) fn check(_: &Setup) -> Result<Outcome> {
    if let Some(why) = missing(&[("promtool", "prometheus")]) {
        return Ok(Outcome::Skipped(why));
    }
    let rules = chart().join("files/rules.yaml");
    let checked = output(Command::new("promtool").args(["check", "rules"]).arg(&rules))?;
    let found = checked.lines().find(|line| line.contains("SUCCESS"));
    let found = found.context("promtool found no rules")?.trim().to_owned();
    let tests = chart().with_file_name("rules-test.yaml");
    output(Command::new("promtool").args(["test", "rules"]).arg(tests))?;
    Ok(Outcome::Passed(format!("{found}, promtool test rules passed")))
}
