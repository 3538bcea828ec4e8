//! Needs of tests that not every machine meets. A test that uses one of these functions must be in the module that the function names, so
//! that `cargo xtask test` can skip it; `cargo xtask lint` refuses other uses.

// For tests only: a missing file fails the test.
#![allow(clippy::expect_used)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file or folder of the real photos and networks in `FROSTLINE_SHARED`. For tests in `needs_shared`.
///
/// # Panics
/// Where the variable is not set.
pub fn shared_file(name: &str) -> PathBuf {
    let folder = std::env::var_os("FROSTLINE_SHARED");
    PathBuf::from(folder.expect("FROSTLINE_SHARED is not set; cargo xtask test skips tests that need it"))
        .join(name)
}

/// The component of a guest that `cargo xtask guests` built from source. For tests in `needs_guests`.
///
/// # Panics
/// Where it is not built.
pub fn built_guest(name: &str) -> PathBuf {
    let file = guests().join(format!("{name}.wasm"));
    assert!(
        file.is_file(),
        "guest {name} is not built; run cargo xtask guests"
    );
    file
}

/// The component of the stock guest: as built from source, else as committed.
pub fn stock_guest() -> PathBuf {
    let built = guests().join("prefix.wasm");
    if built.is_file() {
        built
    } else {
        repository().join("guest/prefix/prefix.wasm")
    }
}

/// `program` in a mount namespace of its own, after the shell did `setup` there. For tests in `needs_unshare`.
pub fn in_mount_namespace(setup: &str, program: impl AsRef<OsStr>) -> Command {
    let status = Command::new("unshare").args(["--mount", "true"]).status();
    let as_root = status.is_ok_and(|status| status.success());
    let mut command = Command::new("unshare");
    command
        .args((!as_root).then_some("--map-root-user"))
        .args(["--mount", "sh", "-c"]);
    command.arg(format!(r#"{setup} && exec "$0" "$@""#)).arg(program);
    command
}

fn guests() -> PathBuf {
    let folder = std::env::var_os("FROSTLINE_GUESTS_DIR");
    folder.map_or_else(|| repository().join("target/guests"), PathBuf::from)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
