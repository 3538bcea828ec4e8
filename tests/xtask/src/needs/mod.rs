//! Needs of tests: programs, hardware and data that are missing on some machines. Tests with a need are in a
//! module named after the need, in any crate. If the need is not met, these tests are skipped and reported
//! with instructions to enable them.

#[cfg(feature = "source")]
pub(crate) mod lint;
pub(crate) mod skipped;

use crate::workspace::target;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Requirement that some machines do not meet.
pub(crate) struct Need {
    /// Name of the test modules.
    pub(crate) module: &'static str,
    /// Functions and string literals (programs, environment variables) that are reserved for tests in these
    /// modules.
    #[cfg_attr(not(feature = "source"), expect(dead_code, reason = "read by the lint alone"))]
    pub(crate) marks: &'static [&'static str],
    /// Instructions to meet the need.
    pub(crate) enabled_by: &'static str,
}

/// Python with the wheel.
pub(crate) const WHEEL: &str = "needs_wheel";
/// Python with the wheel and PyTorch.
pub(crate) const TRAINERS: &str = "needs_wheel_with_trainers";
/// Third-party object stores.
pub(crate) const STORES: &str = "needs_stores";
pub(crate) const GPU: &str = "needs_gpu";

/// All needs. A test in nested modules has all of their needs.
pub(crate) const NEEDS: [Need; 15] = [
    Need {
        module: "needs_shared",
        marks: &["shared_file", "FROSTLINE_SHARED"],
        enabled_by: "FROSTLINE_SHARED=<folder of real photos and networks> cargo xtask test needs_shared",
    },
    Need {
        module: "needs_guests",
        marks: &["built_guest", "compiled_guests", "FROSTLINE_GUESTS_DIR"],
        enabled_by: "cargo xtask guests",
    },
    Need {
        module: "needs_clang",
        marks: &["clang"],
        enabled_by: "apt-get install clang lld",
    },
    Need {
        module: "needs_curl",
        marks: &["curl"],
        enabled_by: "apt-get install curl",
    },
    Need {
        module: "needs_libfaketime",
        marks: &["faketime/libfaketimeMT.so.1"],
        enabled_by: "apt-get install libfaketime",
    },
    Need {
        module: "needs_prometheus",
        marks: &["prometheus"],
        enabled_by: "apt-get install prometheus",
    },
    Need {
        module: "needs_chromium",
        marks: &["chromium"],
        enabled_by: "apt-get install chromium",
    },
    Need {
        module: WHEEL,
        marks: &["FROSTLINE_WHEEL_PYTHON"],
        enabled_by: "cargo xtask test needs_wheel",
    },
    Need {
        module: TRAINERS,
        marks: &["FROSTLINE_TRAINERS_PYTHON"],
        enabled_by: "python3 tests/bench/peers/setup_torch.py --trainers",
    },
    Need {
        module: STORES,
        marks: &["FROSTLINE_STORES"],
        enabled_by: "cargo xtask stores --install",
    },
    Need {
        module: "needs_unshare",
        marks: &["in_mount_namespace", "start_without_proc"],
        enabled_by: "running on a system that allows unshare --mount",
    },
    Need {
        module: "needs_proc",
        marks: &["memory_cases", "row_cases"],
        enabled_by: "Linux with /proc",
    },
    Need {
        module: "needs_walls",
        marks: &["behind", "lost_lane", "without_walls"],
        enabled_by: "Linux 6.12 or later with Landlock and seccomp",
    },
    Need {
        module: "needs_root",
        marks: &["in_window"],
        enabled_by: "running the tests as root, to inspect other processes",
    },
    Need {
        module: GPU,
        marks: &[],
        enabled_by: "a machine with an NVIDIA GPU, CUDA 13 and cuDNN 9",
    },
];

/// Returns the modules of needs that this machine does not meet. Needs that require a build to check (the
/// wheel, PyTorch) and the GPU are checked elsewhere.
pub(crate) fn unmet() -> Vec<&'static str> {
    let met = [
        ("needs_shared", std::env::var_os("FROSTLINE_SHARED").is_some()),
        ("needs_guests", built_guests().is_dir()),
        ("needs_clang", runs("clang", &["--version"])),
        ("needs_curl", runs("curl", &["--version"])),
        ("needs_libfaketime", frostline_e2e::libfaketime().is_some()),
        ("needs_prometheus", runs("prometheus", &["--version"])),
        ("needs_chromium", runs("chromium", &["--version"])),
        (STORES, false),
        (
            "needs_unshare",
            runs("unshare", &["--mount", "true"]) || runs("unshare", &["--map-root-user", "--mount", "true"]),
        ),
        ("needs_root", runs("sh", &["-c", "test $(id -u) = 0"])),
        ("needs_walls", has_walls()),
        ("needs_proc", Path::new("/proc/self/clear_refs").exists()),
    ];
    met.into_iter()
        .filter(|(_, met)| !met)
        .map(|(module, _)| module)
        .collect()
}

/// Finds a need by module name.
pub(crate) fn find(module: &str) -> Option<&'static Need> {
    NEEDS.iter().find(|need| need.module == module)
}

/// Returns the output folder of `cargo xtask guests`.
pub(crate) fn built_guests() -> PathBuf {
    target().join("guests")
}

/// True if `frostline doctor` finds that Landlock and seccomp confine processes here.
fn has_walls() -> bool {
    let program = target().join("debug/frostline");
    let Ok(output) = Command::new(program).args(["doctor", "--json"]).output() else {
        return false;
    };
    let findings = String::from_utf8_lossy(&output.stdout).into_owned();
    findings.lines().any(|line| {
        let finding: Value = serde_json::from_str(line).unwrap_or_default();
        let is = |name: &str, value: &str| finding.get(name).and_then(Value::as_str) == Some(value);
        is("check", "walls") && is("state", "works")
    })
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
