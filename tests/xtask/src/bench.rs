//! Benchmarks: built for release and run with what they need.

use crate::workspace::{self, cargo, output, root, target};
use crate::{gpu, ort, python};
use anyhow::Result;
use std::process::Command;

/// `cargo xtask bench <name> [--quick]`: the names are the benchmark binary's own; without one it lists them.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    // One that can use a GPU runs what is measured on the processor as well.
    let library = gpu::probe().or_else(|_| ort::ensure())?;
    let path = python::ensure("tests/requirements.txt", "python")?;
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
    let binary = target().join("release/frostline-bench");
    workspace::run(
        Command::new(binary)
            .args(arguments)
            .current_dir(root())
            .env("ORT_DYLIB_PATH", library)
            .env("PATH", path)
            // Each run is to do all of its work; a benchmark of kept rows says so.
            .env("FROSTLINE_FEATURE_CACHE", "off")
            .env("FROSTLINE_BENCH_OUT", target().join("bench"))
            .env("FROSTLINE_BENCH_COMMIT", commit.unwrap_or_default().trim()),
    )
}
