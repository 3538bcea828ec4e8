//! Lists, reports and records skipped tests. The record is used by `cargo xtask test --skipped`.

use super::{Need, find};
use crate::test::{Environment, LONG, TestSelection, long_targets};
use crate::workspace::{SHARED_BUILD, cargo, output, root, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// Skipped tests of a run.
pub(crate) struct Skipped {
    /// Unmet needs with their tests. Tests with more than one unmet need are listed under the first.
    unmet: Vec<(&'static Need, Vec<String>)>,
    /// Number of skipped tests in modules named `long`.
    long: usize,
}

/// Lists the tests in the modules `unmet`, and counts the long ones.
pub(crate) fn list(
    unmet: &[&'static str],
    extent: &TestSelection,
    environment: &Environment,
) -> Result<Skipped> {
    let mut listing = cargo();
    listing
        .args(["test", "--quiet"])
        .args(SHARED_BUILD)
        .args(extent.targets())
        .args(["--", "--list", "--format", "terse"])
        .env("ORT_DYLIB_PATH", &environment.library)
        .env("PATH", &environment.path);
    let listed = output(&mut listing)?;
    let mut skipped = Skipped {
        unmet: unmet
            .iter()
            .filter_map(|module| find(module))
            .map(|need| (need, Vec::new()))
            .collect(),
        long: 0,
    };
    let leaves_out_long = matches!(extent, TestSelection::Default);
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let unmet = test
            .split("::")
            .find_map(|part| skipped.unmet.iter().position(|(need, _)| need.module == part));
        if let Some((_, tests)) = unmet.and_then(|place| skipped.unmet.get_mut(place)) {
            tests.push(test.to_owned());
        } else if leaves_out_long && test.split("::").any(|part| part == LONG) {
            skipped.long += 1;
        }
    }
    skipped.unmet.retain(|(_, tests)| !tests.is_empty());
    Ok(skipped)
}

/// Formats a report for printing before the test runner's summary.
pub(crate) fn report(skipped: &Skipped, extent: &TestSelection) -> String {
    let count: usize = skipped.unmet.iter().map(|(_, tests)| tests.len()).sum();
    let mut text = format!("skipped: {count} tests with needs that this machine does not meet");
    for (need, tests) in &skipped.unmet {
        text += &format!(
            "\n  {} ({}), enabled by: {}",
            need.module,
            tests.len(),
            need.enabled_by
        );
        for test in tests {
            text += &format!("\n    {test}");
        }
    }
    if matches!(extent, TestSelection::Default) {
        let targets: Vec<&str> = long_targets().filter(|word| !word.starts_with("--")).collect();
        text += &format!(
            "\nskipped: {} long tests and the test programs {}; to run: cargo xtask test --skipped (--all for every test)",
            skipped.long,
            targets.join(", ")
        );
    }
    text
}

/// Records the skipped modules of a run.
pub(crate) fn write(modules: &[&str]) -> Result<()> {
    fs::write(file(), modules.join("\n")).context("cannot record the skipped tests")
}

/// Reads the modules that the previous run skipped.
pub(crate) fn read() -> Result<Vec<String>> {
    let text = fs::read_to_string(file())
        .context("missing record of skipped tests; run `cargo xtask test` first")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Fails if tests were skipped in modules that `.ci/may-skip` does not list.
pub(crate) fn check(skipped: &Skipped) -> Result<()> {
    let allowed = fs::read_to_string(root().join(".ci/may-skip")).context("cannot read .ci/may-skip")?;
    let names = |module: &str| allowed.lines().any(|line| line.trim() == module);
    let refused: Vec<&str> = skipped
        .unmet
        .iter()
        .map(|(need, _)| need.module)
        .filter(|module| !names(module))
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    bail!(
        "skipped tests are not listed in .ci/may-skip: {}",
        refused.join(", ")
    );
}

fn file() -> PathBuf {
    target().join("skipped-tests")
}
