//! Workspace paths and helpers that run programs.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Returns cargo's build folder: `CARGO_TARGET_DIR` or `target/`.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// Returns a command for the cargo that started this program, without the variables that this cargo set. Some
/// build scripts, such as that of ring, rerun if one of these variables changes, so builds by this program
/// and by hand would invalidate each other.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// True if `cargo <name>` is installed.
pub(crate) fn has_cargo_command(name: &str) -> bool {
    let version = cargo().args([name, "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// Arguments that begin every build of the workspace. Cargo unifies features over everything that is built
/// together, including dependencies of tests if a test is built. With one test in common, all builds use the
/// same dependencies.
pub(crate) const SHARED_BUILD: [&str; 3] = ["--workspace", "--test", "command"];

/// Builds a program and returns its path.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    run(cargo().arg("build").args(SHARED_BUILD).args(["--bin", name]))?;
    Ok(target().join("debug").join(name))
}

/// Runs a command to completion with inherited output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command to completion and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed invalid UTF-8"))
}

/// Returns the compiler's default target, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host_target() -> Result<String> {
    let version = output(Command::new("rustc").arg("-vV").current_dir(root()))?;
    let target = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(target.context("rustc -vV printed no host")?.to_owned())
}

/// Describes the first missing program and the required Debian package. Entries are pairs of a program and a
/// package.
pub(crate) fn missing(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = programs.iter().find(|(program, _)| !has_program(program))?;
    Some(format!("{program} is not installed (apt-get install {package})"))
}

pub(crate) fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// True if this process runs as root, which chroot and mount need.
pub(crate) fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Formats a command like a shell command line.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
