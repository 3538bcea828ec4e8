//! Tests that a run leaves out: listed, reported, and recorded for `cargo xtask test --skipped`.

use super::{Need, find};
use crate::test::{Environment, Extent, LONG, long_targets};
use crate::workspace::{SHARED_BUILD, cargo, output, root, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// The tests that a run leaves out.
pub(crate) struct Skipped {
    /// For each unmet need its tests. A test with several is listed once.
    unmet: Vec<(&'static Need, Vec<String>)>,
    /// Number of tests in modules named `long`, if the run leaves them out.
    long: usize,
}

/// Lists the tests in the modules `unmet`, and counts the long ones.
pub(crate) fn list(unmet: &[&'static str], extent: &Extent, environment: &Environment) -> Result<Skipped> {
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
    let leaves_out_long = matches!(extent, Extent::Default);
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

/// The report that is printed before the runner's summary.
pub(crate) fn report(skipped: &Skipped, extent: &Extent) -> String {
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
    if matches!(extent, Extent::Default) {
        let targets: Vec<&str> = long_targets().filter(|word| !word.starts_with("--")).collect();
        text += &format!(
            "\nleft out: {} long tests and the programs of tests {}; run them with: cargo xtask test --skipped (or everything: --all)",
            skipped.long,
            targets.join(", ")
        );
    }
    text
}

/// Records the modules that a run left out.
pub(crate) fn write(modules: &[&str]) -> Result<()> {
    fs::write(file(), modules.join("\n")).context("cannot record the skipped tests")
}

/// The modules that the last run left out.
pub(crate) fn read() -> Result<Vec<String>> {
    let text =
        fs::read_to_string(file()).context("no record of skipped tests; run `cargo xtask test` first")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Refuses skipped tests whose module `.ci/may-skip` does not list.
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
        "tests were skipped that .ci/may-skip does not list: {}",
        refused.join(", ")
    );
}

fn file() -> PathBuf {
    target().join("skipped-tests")
}
