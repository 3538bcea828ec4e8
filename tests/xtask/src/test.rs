//! The tests, with everything they need.

use crate::workspace::{self, cargo, has_cargo_command, target};
use crate::{ort, python};
use anyhow::Result;

/// Sets up ONNX Runtime and the Python packages, then runs every test with nextest where it is installed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let library = ort::ensure()?;
    let packages = python::ensure()?;
    match std::env::var_os("FROSTLINE_SHARED") {
        Some(folder) => eprintln!("real-data tests use {}", folder.to_string_lossy()),
        None => {
            eprintln!("FROSTLINE_SHARED is not set: the tests on real data and real networks are skipped")
        }
    }
    let mut command = cargo();
    if has_cargo_command("nextest") {
        command.args(["nextest", "run", "--workspace"]);
    } else {
        command.args(["test", "--workspace"]);
    }
    command
        .args(arguments)
        .env("ORT_DYLIB_PATH", library)
        .env("PYTHONPATH", packages);
    let rebuilt = target().join("guests");
    if rebuilt.is_dir() {
        eprintln!(
            "guests rebuilt from source are in {}: the tests use those",
            rebuilt.display()
        );
        command.env("FROSTLINE_GUESTS_DIR", rebuilt);
    }
    workspace::run(&mut command)
}
