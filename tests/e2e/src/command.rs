use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns the `frostline` binary in the build folder of the running test or benchmark, if it is built.
pub fn frostline_binary() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    here.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("frostline"))
        .find(|binary| binary.is_file())
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Output of a finished command.
#[derive(Debug)]
pub struct Finished {
    /// Exit code, or None if a signal ended the process.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Parses the JSON values printed on standard output, one per line.
    ///
    /// # Errors
    /// Returns an error if a line is invalid JSON.
    pub fn objects(&self) -> serde_json::Result<Vec<Value>> {
        self.stdout.lines().map(serde_json::from_str).collect()
    }

    /// Returns the last JSON object on standard error with the key `error`, which commands print if `--json`
    /// is set.
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

/// Runs `command` to completion without input.
///
/// # Errors
/// Returns an error if the command cannot be started.
pub fn finish(command: &mut Command) -> std::io::Result<Finished> {
    command.stdin(Stdio::null()).output().map(Finished::from)
}
