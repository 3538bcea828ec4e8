//! Program for lanes in child processes: this test binary with a single test.

use crate::gauge::Gauge;
use crate::{ChildLanes, LanesPlace};
use std::path::PathBuf;
use std::sync::Arc;

#[test]
#[ignore = "the process of a lane; other tests start it"]
fn serves_a_lane() {
    crate::enter_lane().unwrap().serve().unwrap();
}

/// Returns the path of this program, also without `/proc`.
pub(super) fn this_program() -> PathBuf {
    let named = || std::env::args_os().next().unwrap().into();
    std::env::current_exe().unwrap_or_else(|_| named())
}

pub(crate) fn program() -> ChildLanes {
    let arguments = [
        "--exact",
        "tests::lane_process::serves_a_lane",
        "--ignored",
        "--nocapture",
    ];
    ChildLanes::new(this_program(), arguments)
}

pub(super) fn place() -> LanesPlace {
    LanesPlace::Child(program())
}

/// A lane on a device whose reported usage is the peak of this process. Sessions on such a device retain the
/// memory of their batches, like in an arena.
#[test]
#[ignore = "the process of a lane on a device; other tests start it"]
fn serves_a_lane_on_a_device() {
    crate::enter_lane()
        .unwrap()
        .serve_on(Arc::new(OfThisProcess))
        .unwrap();
}

struct OfThisProcess;

impl Gauge for OfThisProcess {
    fn used(&self) -> Option<u64> {
        Some(crate::lanes::usage()?.peak)
    }
}

/// Returns the settings for lanes on such a device.
pub(super) fn place_on_device() -> LanesPlace {
    let mut program = program();
    program.arguments[1] = "tests::lane_process::serves_a_lane_on_a_device".into();
    LanesPlace::Child(program)
}
