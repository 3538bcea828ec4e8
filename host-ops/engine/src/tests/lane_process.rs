//! Program for lanes in child processes: this test binary with a single test.

use crate::gauge::Gauge;
use crate::lanes::usage;
use crate::{ChildLanes, LanesPlace};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
        Some(usage()?.peak)
    }
}

/// Returns the settings for lanes on such a device.
pub(super) fn place_on_device() -> LanesPlace {
    place_in("serves_a_lane_on_a_device")
}

/// Returns the settings for lanes whose processes run the test `name` of this module.
pub(super) fn place_in(name: &str) -> LanesPlace {
    let mut program = program();
    program.arguments[1] = format!("tests::lane_process::{name}").into();
    LanesPlace::Child(program)
}

/// Serves a lane. After a session of 16 MiB was opened, repeats `act` on another thread, like the code of a
/// network that took over the process.
fn serve_lost_lane(mut act: impl FnMut() + Send + 'static) {
    const PAUSE: Duration = Duration::from_millis(1);
    let lane = crate::enter_lane().unwrap();
    let before = usage().unwrap().anonymous;
    std::thread::spawn(move || {
        while usage().unwrap().anonymous < before + (8 << 20) {
            std::thread::sleep(PAUSE);
        }
        loop {
            act();
            std::thread::sleep(PAUSE);
        }
    });
    lane.serve().unwrap();
}

#[test]
#[ignore = "the process of a lost lane; other tests start it"]
fn serves_a_lane_that_uses_memory() {
    static BLOCK: [u8; 1 << 20] = [1; 1 << 20];
    let mut kept: Vec<Vec<u8>> = Vec::with_capacity(4096);
    serve_lost_lane(move || {
        let maximum = getrlimit(Resource::Data).maximum;
        let lifted = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Data, lifted).unwrap();
        let mut block = Vec::new();
        if block.try_reserve_exact(BLOCK.len()).is_ok() {
            block.extend_from_slice(&BLOCK);
            kept.push(block);
        }
    });
}

#[test]
#[ignore = "the process of a lost lane; other tests start it"]
fn serves_a_lane_that_starts_threads() {
    // Starting a thread fails if the memory for its stack exceeds the limit.
    serve_lost_lane(|| drop(std::thread::Builder::new().spawn(std::thread::park)));
}
