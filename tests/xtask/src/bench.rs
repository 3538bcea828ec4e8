//! Builds the benchmarks for release and runs them with their requirements.

use crate::workspace::{self, cargo, output, root, target};
use crate::{gpu, ort, python, wheel};
use anyhow::Result;
use std::process::Command;

/// Benchmarks that need the Python wheel.
const WITH_WHEEL: [&str; 4] = ["embedded", "python", "scale", "zoo"];

/// Benchmarks that need guests built from source.
const WITH_GUESTS: [&str; 1] = ["isolation"];

/// Runs `cargo xtask bench <name> [--quick]`. The benchmark binary validates the name; without one, it lists
/// the benchmarks.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    // The library for GPUs also runs benchmarks on the CPU.
    let library = gpu::probe().or_else(|_| ort::ensure())?;
    let path = python::ensure("tests/requirements.txt", "python")?;
    let is_one_of = |names: &[&str]| {
        arguments
            .first()
            .is_some_and(|name| names.contains(&name.as_str()))
    };
    if is_one_of(&WITH_GUESTS) {
        workspace::run(&mut Command::new(workspace::program("guest-builder")?))?;
    }
    let commit = output(
        Command::new("git")
            .args(["rev-parse", "--short=12", "HEAD"])
            .current_dir(root()),
    );
    workspace::run(cargo().args([
        "build",
        "--release",
        "--package",
        "frostline",
        "--package",
        "frostline-bench",
    ]))?;
    let mut command = Command::new(target().join("release/frostline-bench"));
    if is_one_of(&WITH_WHEEL) {
        let wheel = wheel::build_and_install(true)?.map_err(anyhow::Error::msg)?;
        command
            .env("FROSTLINE_WHEEL_PYTHON", wheel.python)
            .env("FROSTLINE_WHEEL", wheel.file);
    }
    workspace::run(
        command
            .args(arguments)
            .current_dir(root())
            .env("ORT_DYLIB_PATH", library)
            .env("PATH", path)
            // Disable the caches so that no run reuses earlier results. Benchmarks of the caches enable them.
            .env("FROSTLINE_FEATURE_CACHE", "off")
            .env("FROSTLINE_EXPORT_CACHE", "off")
            .env("FROSTLINE_BENCH_OUT", target().join("bench"))
            .env("FROSTLINE_BENCH_COMMIT", commit.unwrap_or_default().trim()),
    )
}
