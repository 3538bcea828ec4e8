//! The program of lanes in child processes: this one, asked for a single test.

use crate::gauge::Gauge;
use crate::{ChildLanes, LanesPlace};
use std::path::PathBuf;
use std::sync::Arc;

#[test]
#[ignore = "the process of a lane, which other tests start"]
fn serves_a_lane() {
    crate::enter_lane().unwrap().serve().unwrap();
}

/// This program, also where there is no `/proc` to ask.
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

/// A lane on a device that has taken as much as this process ever did: what a run took stays with its session, as in an arena.
#[test]
#[ignore = "the process of a lane on a device, which other tests start"]
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

/// Lanes on such a device.
pub(super) fn place_on_device() -> LanesPlace {
    let mut program = program();
    program.arguments[1] = "tests::lane_process::serves_a_lane_on_a_device".into();
    LanesPlace::Child(program)
}
