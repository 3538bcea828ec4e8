//! Python packages for tests and benchmarks, in virtual environments in the build folder.

use crate::workspace::{root, run, target};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// File in an environment that stores the installed requirements.
const MARKER: &str = "installed-requirements.txt";

/// Serializes checks and installations of environments.
static INSTALLING: Mutex<()> = Mutex::new(());

/// Creates the virtual environment `target/<name>` with the packages in `requirements` (a file of the
/// repository), unless it is up to date. Returns a `PATH` on which `python3` is its interpreter.
pub(crate) fn ensure(requirements: &str, name: &str) -> Result<OsString> {
    let requirements = root().join(requirements);
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let environment = target().join(name);
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if !std::fs::read_to_string(environment.join(MARKER)).is_ok_and(|installed| installed == wanted) {
        eprintln!("installing Python packages into {}", environment.display());
        install(&environment, &requirements)?;
        std::fs::write(environment.join(MARKER), wanted)?;
    }
    let mut folders = vec![environment.join("bin")];
    folders.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    Ok(std::env::join_paths(folders)?)
}

/// Installs packages with a pip outside the environment, because Debian's Python cannot install pip into an
/// environment.
fn install(environment: &Path, requirements: &Path) -> Result<()> {
    let venv = ["-m", "venv", "--clear", "--without-pip"];
    run(Command::new("python3").args(venv).arg(environment))
        .context("cannot create a virtual environment; install Python 3 with the module venv")?;
    let interpreter = environment.join("bin/python3");
    run(pip(&["--python"])
        .arg(interpreter)
        .args(["install", "--requirement"])
        .arg(requirements))
    .with_context(|| {
        format!(
            "cannot install {} (requires pip 22.3 or later)",
            requirements.display()
        )
    })
}

/// Returns the command `python3 -m pip` with `arguments`, quiet and without prompts.
pub(crate) fn pip(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .args([
            "-m",
            "pip",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ])
        .args(arguments);
    command
}

/// Unpacks a wheel, which is a zip file, into `folder`.
pub(crate) fn unpack(wheel: &Path, folder: &Path) -> Result<()> {
    run(Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(folder))
}

/// Computes the SHA-256 of `bytes` in hexadecimal digits. Uses Python, which is required anyway, to save this
/// program a dependency.
pub(crate) fn sha256(bytes: &[u8]) -> Result<String> {
    const SCRIPT: &str = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())";
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start python3")?;
    let mut stdin = child.stdin.take().context("python3 has no input")?;
    stdin.write_all(bytes)?;
    drop(stdin);
    let output = child.wait_with_output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
