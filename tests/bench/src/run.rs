//! Runs the `frostline` binary and reads its output.

use anyhow::{Context, Result, bail};
use frostline_e2e::finish;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Path of the `frostline` release binary in the folder of this program.
pub(crate) fn binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let binary = here
        .parent()
        .context("this program has no folder")?
        .join("frostline");
    if !binary.is_file() {
        bail!(
            "{} does not exist; run this benchmark with `cargo xtask bench`",
            binary.display()
        );
    }
    Ok(binary)
}

/// Path of a file in this repository, or in the copy named by `FROSTLINE_SOURCE` on a machine without the
/// repository.
pub(crate) fn source(path: &str) -> PathBuf {
    let named = std::env::var_os("FROSTLINE_SOURCE").map(PathBuf::from);
    named.unwrap_or_else(frostline_e2e::repository).join(path)
}

/// Path of a file or folder in `FROSTLINE_SHARED`, if the variable is set and the path exists.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FROSTLINE_SHARED")?;
    Some(PathBuf::from(folder).join(path)).filter(|path| path.exists())
}

/// Runs `frostline <arguments> --json` and returns the objects it printed.
pub(crate) fn frostline(arguments: &[&str]) -> Result<Vec<Value>> {
    json_lines(Command::new(binary()?).args(arguments).arg("--json"))
}

/// Trains `model` behind the cut `freeze` on the photos in `data` and returns the events. Writes the run and `tuned.onnx` to `folder`.
pub(crate) fn train(
    model: &Path,
    data: &Path,
    freeze: &str,
    folder: &Path,
    flags: &[&str],
) -> Result<Vec<Value>> {
    let mut command = Command::new(binary()?);
    command.args(["train", "--json", "--freeze", freeze]).args(flags);
    command.arg("--model").arg(model).arg("--data").arg(data);
    command.arg("--out").arg(folder.join("tuned.onnx"));
    json_lines(command.arg("--runs").arg(folder))
}

/// Runs a command that prints one JSON object per line, and returns the objects.
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

/// Runs a command and returns the last object it prints.
pub(crate) fn last_object(command: &mut Command) -> Result<Value> {
    let printed = json_lines(command)?;
    let last = printed.into_iter().next_back();
    last.with_context(|| format!("{command:?} printed nothing"))
}

/// Runs `frostline admin <arguments>` with this socket and returns the objects it prints.
pub(crate) fn admin(socket: &Path, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut command = Command::new(binary()?);
    command.args(["admin", "--json", "--socket"]).arg(socket);
    let run = finish(command.args(arguments))?;
    if run.code != Some(0) {
        bail!("frostline admin {}: {}", arguments.join(" "), run.stderr);
    }
    Ok(run.objects()?)
}

/// Returns the number under `key` in an object.
pub(crate) fn number(object: &Value, key: &str) -> Result<f64> {
    let found = object.get(key).and_then(Value::as_f64);
    found.with_context(|| format!("no number {key:?} in {object}"))
}

/// Returns the number under `key` in the last event named `event`.
pub(crate) fn last_number(events: &[Value], event: &str, key: &str) -> Result<f64> {
    let named = |value: &&Value| value.get("event").and_then(Value::as_str) == Some(event);
    let last = events.iter().rfind(named);
    number(last.with_context(|| format!("no event {event:?}"))?, key)
}

/// Returns a path as UTF-8, for command lines.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
