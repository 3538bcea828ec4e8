//! Skipped tests: listed, reported, and recorded for `cargo xtask test --skipped`.

use super::{Need, find};
use crate::test::Environment;
use crate::workspace::{cargo, output, root, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// The tests skipped for one need.
pub(crate) struct Skipped {
    need: &'static Need,
    tests: Vec<String>,
}

/// The tests in the modules `unmet`, each listed under its outermost module.
pub(crate) fn list(unmet: &[&'static str], environment: &Environment) -> Result<Vec<Skipped>> {
    let mut listing = cargo();
    listing.args([
        "test",
        "--workspace",
        "--tests",
        "--quiet",
        "--",
        "--list",
        "--format",
        "terse",
    ]);
    listing
        .env("ORT_DYLIB_PATH", &environment.library)
        .env("PATH", &environment.path);
    let listed = output(&mut listing)?;
    let mut skipped: Vec<Skipped> = unmet
        .iter()
        .filter_map(|module| find(module))
        .map(|need| Skipped {
            need,
            tests: Vec::new(),
        })
        .collect();
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let lies_in = |part: &str| skipped.iter().position(|skipped| skipped.need.module == part);
        if let Some(place) = test.split("::").find_map(lies_in) {
            skipped
                .get_mut(place)
                .context("unknown need")?
                .tests
                .push(test.to_owned());
        }
    }
    skipped.retain(|skipped| !skipped.tests.is_empty());
    Ok(skipped)
}

/// The report that is printed before the runner's summary.
pub(crate) fn report(skipped: &[Skipped]) -> String {
    let count: usize = skipped.iter().map(|skipped| skipped.tests.len()).sum();
    let mut text = format!("skipped: {count} tests with needs that this machine does not meet");
    for Skipped { need, tests } in skipped {
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
    text
}

/// Records the unmet needs.
pub(crate) fn write(unmet: &[&'static str]) -> Result<()> {
    fs::write(file(), unmet.join("\n")).context("cannot record the skipped tests")
}

/// The modules that the last run of all tests skipped.
pub(crate) fn read() -> Result<Vec<String>> {
    let text =
        fs::read_to_string(file()).context("no record of skipped tests; run `cargo xtask test` first")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Refuses skipped tests whose module `.ci/may-skip` does not list.
pub(crate) fn check(skipped: &[Skipped]) -> Result<()> {
    let allowed = fs::read_to_string(root().join(".ci/may-skip")).context("cannot read .ci/may-skip")?;
    let names = |module: &str| allowed.lines().any(|line| line.trim() == module);
    let refused: Vec<&str> = skipped
        .iter()
        .map(|skipped| skipped.need.module)
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
