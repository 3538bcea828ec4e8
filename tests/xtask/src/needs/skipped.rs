//! What a run of the tests skips: counted, named, and remembered for `cargo xtask test --skipped`.

use super::{Need, find};
use crate::test::Environment;
use crate::workspace::{cargo, output, root, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// Tests that are skipped for one need.
pub(crate) struct Skipped {
    need: &'static Need,
    tests: Vec<String>,
}

/// The tests in the modules `unmet`, each under the outermost that it lies in.
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
                .context("a need has gone")?
                .tests
                .push(test.to_owned());
        }
    }
    skipped.retain(|skipped| !skipped.tests.is_empty());
    Ok(skipped)
}

/// What is said of them before the runner's summary.
pub(crate) fn report(skipped: &[Skipped]) -> String {
    let count: usize = skipped.iter().map(|skipped| skipped.tests.len()).sum();
    let mut text = format!("skipped: {count} tests whose needs this machine does not meet");
    for Skipped { need, tests } in skipped {
        text += &format!(
            "\n  {} ({}), brought by: {}",
            need.module,
            tests.len(),
            need.brought_by
        );
        for test in tests {
            text += &format!("\n    {test}");
        }
    }
    text
}

/// Remembers the needs that were not met.
pub(crate) fn write(unmet: &[&'static str]) -> Result<()> {
    fs::write(file(), unmet.join("\n")).context("cannot remember what was skipped")
}

/// The modules that the last run of all tests skipped.
pub(crate) fn read() -> Result<Vec<String>> {
    let text = fs::read_to_string(file())
        .context("no run of all tests was made here: `cargo xtask test` comes first")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Refuses what is skipped and not named in `.ci/may-skip`.
pub(crate) fn check(skipped: &[Skipped]) -> Result<()> {
    let allowed = fs::read_to_string(root().join(".ci/may-skip")).context(".ci/may-skip cannot be read")?;
    let names = |module: &str| allowed.lines().any(|line| line.trim() == module);
    let refused: Vec<&str> = skipped
        .iter()
        .map(|skipped| skipped.need.module)
        .filter(|module| !names(module))
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    bail!("skipped, and not named in .ci/may-skip: {}", refused.join(", "));
}

fn file() -> PathBuf {
    target().join("skipped-tests")
}
