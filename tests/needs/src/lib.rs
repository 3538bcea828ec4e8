//! Needs of tests that some machines do not meet. A test that uses one of these functions must be in the
//! module stated there, so that `cargo xtask test` can skip it; `cargo xtask lint` refuses other uses.

// For tests only: a missing file fails the test.
#![allow(clippy::expect_used)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of a file in the folder of photos and networks that `FROSTLINE_SHARED` names. For tests
/// in `needs_shared`.
///
/// # Panics
/// Panics if the variable is not set.
pub fn shared_file(name: &str) -> PathBuf {
    let folder = std::env::var_os("FROSTLINE_SHARED");
    PathBuf::from(
        folder.expect("FROSTLINE_SHARED is not set; set it, or skip these tests with cargo xtask test"),
    )
    .join(name)
}

/// Returns the path of a guest component built by `cargo xtask guests`. For tests in `needs_guests`.
///
/// # Panics
/// Panics if the guest is not built.
pub fn built_guest(name: &str) -> PathBuf {
    let file = guests().join(format!("{name}.wasm"));
    assert!(
        file.is_file(),
        "guest {name} is not built; run cargo xtask guests"
    );
    file
}

/// Returns the path of the stock guest: built from source if available, otherwise as committed.
pub fn stock_guest() -> PathBuf {
    let built = guests().join("prefix.wasm");
    if built.is_file() {
        built
    } else {
        repository().join("guest/prefix/prefix.wasm")
    }
}

/// Returns a command that runs the shell command `setup`, then `program`, in a separate mount namespace. For
/// tests in `needs_unshare`.
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
