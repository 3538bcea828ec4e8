//! The program of lanes in child processes: this one, asked for a single test.

use crate::{ChildLanes, LanesPlace};

#[test]
#[ignore = "the process of a lane, which other tests start"]
fn serves_a_lane() {
    crate::serve_lane().unwrap();
}

pub(crate) fn program() -> ChildLanes {
    let arguments = [
        "--exact",
        "tests::lane_process::serves_a_lane",
        "--ignored",
        "--nocapture",
    ];
    ChildLanes::new(std::env::current_exe().unwrap(), arguments)
}

pub(super) fn place() -> LanesPlace {
    LanesPlace::Child(program())
}
