//! Checks that the command compiles alone, as `cargo install --path runtime/cli` compiles it, and installs ONNX
//! Runtime with the command.

use super::{CheckResult, Setup};
use crate::workspace::{cargo, output, run};
use anyhow::{Result, ensure};
use std::fs;
use std::process::Command;

pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    let root = setup.folder.join("installed");
    let _ = fs::remove_dir_all(&root);
    // The build of the tests enables more features of dependencies. Code generation would take as long as that
    // build, and the features that the command lacks are missing before it.
    run(cargo().args(["check", "--quiet", "--locked", "--package", "frostline"]))?;
    // The built command finds the library in the build folder.
    let installed = root.join("bin/frostline");
    fs::create_dir_all(root.join("bin"))?;
    fs::copy(&setup.frostline, &installed)?;
    let frostline = |arguments: &[&str]| {
        let mut command = Command::new(&installed);
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
        "the command compiles alone, and named, ran and found `frostline onnxruntime install`".to_owned(),
    ))
}
