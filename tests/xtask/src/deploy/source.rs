//! Installs the command from source with `cargo install`, then ONNX Runtime with the installed command.

use super::{CheckResult, Setup};
use crate::workspace::{cargo, output};
use anyhow::{Result, ensure};
use std::fs;
use std::process::Command;

pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    let root = setup.folder.join("installed");
    let _ = fs::remove_dir_all(&root);
    output(
        cargo()
            .args(["install", "--quiet", "--locked", "--debug", "--no-track"])
            .args(["--path", "runtime/cli", "--root"])
            .arg(&root),
    )?;
    let command = root.join("bin/frostline");
    let frostline = |arguments: &[&str]| {
        let mut command = Command::new(&command);
        command
            .args(arguments)
            .env("XDG_DATA_HOME", root.join("data"))
            .env_remove("ORT_DYLIB_PATH");
        command
    };
    let before = frostline(&["doctor"]).output()?;
    let printed = String::from_utf8_lossy(&before.stdout);
    ensure!(
        printed.contains("frostline onnxruntime install"),
        "doctor must name the command that installs ONNX Runtime: {printed}"
    );
    output(&mut frostline(&["onnxruntime", "install"]))?;
    let after = output(&mut frostline(&["doctor"]))?;
    ensure!(
        after.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("works") && words.next() == Some("library")
        }),
        "doctor must find the installed library: {after}"
    );
    Ok(CheckResult::Passed(
        "cargo install built the command, which named, ran and found `frostline onnxruntime install`"
            .to_owned(),
    ))
}
