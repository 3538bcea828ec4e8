use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The `frostline` binary in the build folder of the running test or benchmark, if it is built.
pub fn frostline_binary() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    here.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("frostline"))
        .find(|binary| binary.is_file())
}

/// The repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The output of a finished command.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it printed on standard output.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
}

impl Finished {
    /// The objects it printed, one a line.
    ///
    /// # Errors
    /// If a line is not JSON.
    pub fn objects(&self) -> serde_json::Result<Vec<Value>> {
        self.stdout.lines().map(serde_json::from_str).collect()
    }

    /// The error of a command with `--json`: the object on standard error that has the key `error`.
    pub fn failure(&self) -> Option<Value> {
        let objects = self.stderr.lines().rev();
        objects
            .filter_map(|line| serde_json::from_str(line).ok())
            .find(|object: &Value| object.get("error").is_some())
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `command` to its end without input.
///
/// # Errors
/// When it cannot be started.
pub fn finish(command: &mut Command) -> std::io::Result<Finished> {
    command.stdin(Stdio::null()).output().map(Finished::from)
}
