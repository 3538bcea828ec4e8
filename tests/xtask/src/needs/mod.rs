//! What not every machine has. Tests that cannot do without lie in modules named after it, in whatever crate: where a need is not met,
//! they are skipped, counted, and named with what brings it.

#[cfg(feature = "source")]
pub(crate) mod lint;
pub(crate) mod skipped;

use crate::workspace::target;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Something that not every machine has.
pub(crate) struct Need {
    /// The module of the tests that need it.
    pub(crate) module: &'static str,
    /// What only such a test may name: a function, or a text such as a program or a variable.
    #[cfg_attr(not(feature = "source"), expect(dead_code, reason = "read by the lint alone"))]
    pub(crate) marks: &'static [&'static str],
    /// What makes it be there.
    pub(crate) brought_by: &'static str,
}

/// Python with the wheel.
pub(crate) const WHEEL: &str = "needs_wheel";
/// The same with PyTorch.
pub(crate) const TRAINERS: &str = "needs_wheel_with_trainers";
/// An object store of others.
pub(crate) const STORES: &str = "needs_stores";
/// A GPU.
pub(crate) const GPU: &str = "needs_gpu";

/// All needs. Where modules lie in one another, all of theirs have to be met.
pub(crate) const NEEDS: [Need; 12] = [
    Need {
        module: "needs_shared",
        marks: &["shared_file", "FROSTLINE_SHARED"],
        brought_by: "FROSTLINE_SHARED=<folder of real photos and networks> cargo xtask test needs_shared",
    },
    Need {
        module: "needs_guests",
        marks: &["built_guest", "compiled_guests", "FROSTLINE_GUESTS_DIR"],
        brought_by: "cargo xtask guests",
    },
    Need {
        module: "needs_clang",
        marks: &["clang"],
        brought_by: "apt-get install clang lld",
    },
    Need {
        module: "needs_chromium",
        marks: &["chromium"],
        brought_by: "apt-get install chromium",
    },
    Need {
        module: WHEEL,
        marks: &["FROSTLINE_WHEEL_PYTHON"],
        brought_by: "cargo xtask test needs_wheel",
    },
    Need {
        module: TRAINERS,
        marks: &["FROSTLINE_TRAINERS_PYTHON"],
        brought_by: "python3 tests/bench/peers/setup_torch.py --trainers",
    },
    Need {
        module: STORES,
        marks: &["FROSTLINE_STORES"],
        brought_by: "cargo xtask stores --install",
    },
    Need {
        module: "needs_unshare",
        marks: &["in_mount_namespace", "start_without_proc"],
        brought_by: "a system that allows unshare --mount",
    },
    Need {
        module: "needs_proc",
        marks: &["memory_cases", "row_cases"],
        brought_by: "a Linux with /proc",
    },
    Need {
        module: "needs_walls",
        marks: &["behind", "lost_lane", "without_walls"],
        brought_by: "Linux 6.12 or later with Landlock and seccomp",
    },
    Need {
        module: "needs_root",
        marks: &["in_window"],
        brought_by: "running the tests as root, who sees into processes that hide",
    },
    Need {
        module: GPU,
        marks: &[],
        brought_by: "a machine with an NVIDIA GPU, CUDA 13 and cuDNN 9",
    },
];

/// The modules of needs that this machine does not meet, by what can be seen without building anything.
pub(crate) fn unmet() -> Vec<&'static str> {
    let met = [
        ("needs_shared", std::env::var_os("FROSTLINE_SHARED").is_some()),
        ("needs_guests", built_guests().is_dir()),
        ("needs_clang", runs("clang", &["--version"])),
        ("needs_chromium", runs("chromium", &["--version"])),
        (STORES, false),
        (
            "needs_unshare",
            runs("unshare", &["--mount", "true"]) || runs("unshare", &["--map-root-user", "--mount", "true"]),
        ),
        ("needs_root", runs("sh", &["-c", "test $(id -u) = 0"])),
        ("needs_walls", frostline_walls::missing().is_empty()),
        ("needs_proc", Path::new("/proc/self/clear_refs").exists()),
    ];
    met.into_iter()
        .filter(|(_, met)| !met)
        .map(|(module, _)| module)
        .collect()
}

/// The need of that module.
pub(crate) fn find(module: &str) -> Option<&'static Need> {
    NEEDS.iter().find(|need| need.module == module)
}

/// Where `cargo xtask guests` puts what it builds.
pub(crate) fn built_guests() -> PathBuf {
    target().join("guests")
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
