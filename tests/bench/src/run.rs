//! Running the `frostline` binary and reading what it reports.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `frostline`, built for release beside this benchmark.
pub(crate) fn binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let binary = here
        .parent()
        .context("this program has no folder")?
        .join("frostline");
    if !binary.is_file() {
        bail!(
            "{} is not there: run this through `cargo xtask bench`",
            binary.display()
        );
    }
    Ok(binary)
}

/// A file of this repository: of the copy that `FROSTLINE_SOURCE` names on a machine without it.
pub(crate) fn source(path: &str) -> PathBuf {
    let named = std::env::var_os("FROSTLINE_SOURCE").map(PathBuf::from);
    named.unwrap_or_else(frostline_e2e::repository).join(path)
}

/// A file or folder of the shared real data, where `FROSTLINE_SHARED` names some.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FROSTLINE_SHARED")?;
    Some(PathBuf::from(folder).join(path)).filter(|path| path.exists())
}

/// Runs `frostline <arguments> --json` and returns the objects it printed.
pub(crate) fn frostline(arguments: &[&str]) -> Result<Vec<Value>> {
    json_lines(Command::new(binary()?).args(arguments).arg("--json"))
}

/// Runs a command that prints one JSON object a line.
pub(crate) fn json_lines(command: &mut Command) -> Result<Vec<Value>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{command:?} failed ({}); see its output above", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}")))
        .collect()
}

/// The values under `key` in the events named `event`.
pub(crate) fn series(events: &[Value], event: &str, key: &str) -> Vec<f64> {
    let of_kind = |value: &&Value| value.get("event").and_then(Value::as_str) == Some(event);
    events
        .iter()
        .filter(of_kind)
        .filter_map(|value| value.get(key)?.as_f64())
        .collect()
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
