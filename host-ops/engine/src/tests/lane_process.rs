//! The program of lanes in child processes: this one, asked for a single test.

use crate::{ChildLanes, LanesPlace};
use std::path::PathBuf;

#[test]
#[ignore = "the process of a lane, which other tests start"]
fn serves_a_lane() {
    crate::serve_lane().unwrap();
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
