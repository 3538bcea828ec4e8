//! Lanes in restricted environments: with a full disk or without `/proc`. Each test creates a mount namespace
//! and runs an ignored test of this module in it.

use super::lane_process::{program, this_program};
use super::setup::{batch, one_lane, stage, start, wait_for};
use crate::{ChildLanes, LanesConfig, LanesPlace, PreparedStages};
use frostline_batching::{Budget, Memory};
use frostline_tensor::GraphExecutor;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Environment variable with the folder that is used as a disk.
const DISK: &str = "FROSTLINE_TEST_DISK";

/// Runs the ignored test `name` in a mount namespace, after the shell commands in `setup`.
fn run_after(setup: &str, name: &str, folder: &Path) {
    let mut command = frostline_needs::in_mount_namespace(setup, this_program());
    let test = format!("tests::surroundings::{name}");
    command.args([&test, "--exact", "--ignored", "--nocapture"]);
    let tried = command.env(DISK, folder).output().unwrap();
    let told = String::from_utf8_lossy(&tried.stdout) + String::from_utf8_lossy(&tried.stderr);
    assert!(tried.status.success() && told.contains("1 passed"), "{told}");
}

fn child(prepared: &Path) -> LanesPlace {
    LanesPlace::Child(ChildLanes {
        prepared: Some(PreparedStages {
            folder: prepared.to_owned(),
            most_bytes: 1 << 30,
        }),
        ..program()
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a small disk; run by `stages_on_a_full_disk_run_from_their_bytes`"]
async fn on_a_full_disk() {
    let disk = PathBuf::from(std::env::var_os(DISK).unwrap());
    let (_, lanes) = start(one_lane(LanesPlace::InProcess));
    let expected = lanes.submit(&stage("wide"), batch(2, 1.0)).await.unwrap();
    // These sizes are enough for the folder's key, the network, the original weights and the weights in
    // kernel layout in turn. Only the last one is enough for everything.
    let stages = disk.join("stages");
    let mut prepared = 0;
    for free in [0, 8 << 10, 8 << 20, 20 << 20, 63 << 20] {
        let ballast = fill(&disk, free);
        let (source, lanes) = start(one_lane(child(&stages)));
        for _ in 0..2 {
            let made = lanes.submit(&stage("wide"), batch(2, 1.0)).await;
            assert_eq!(made.as_ref(), Ok(&expected), "{free} bytes free");
        }
        drop((lanes, source));
        prepared = folders(&stages);
        fs::remove_file(ballast).unwrap();
        fs::remove_dir_all(&stages).ok();
        if free < 20 << 20 {
            assert_eq!(prepared, 0, "failed attempts are removed with {free} bytes free");
        }
    }
    assert_eq!(prepared, 1, "the disk has enough space");
}

/// Fills the disk up to `free` bytes.
fn fill(disk: &Path, free: u64) -> PathBuf {
    let path = disk.join("ballast");
    let mut ballast = File::create(&path).unwrap();
    while ballast.write_all(&[1; 64 << 10]).is_ok() {}
    let full = ballast.metadata().unwrap().len();
    ballast.set_len(full.saturating_sub(free)).unwrap();
    path
}

fn folders(path: &Path) -> usize {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an empty /proc; run by `lanes_work_where_there_is_no_proc`"]
async fn without_proc() {
    assert!(!Path::new("/proc/self").exists());
    let disk = PathBuf::from(std::env::var_os(DISK).unwrap());
    let budget = Budget {
        bytes: 1 << 30,
        ..Budget::default()
    };
    let (_, lanes) = start(LanesConfig {
        memory: Memory::new(budget),
        ..one_lane(child(&disk.join("stages")))
    });
    // The stage would have a separate file for weights.
    let wide = lanes.submit(&stage("wide"), batch(2, 1.0)).await.unwrap();
    assert_eq!(wide.rows(), Ok(2));
    for model in ["swollen", "relu", "swollen"] {
        assert_eq!(
            lanes.submit(&stage(model), batch(5, 2.0)).await,
            Ok(batch(5, 2.0))
        );
    }
    let stats = wait_for(&lanes, |stats| stats.running == 0);
    assert_eq!((stats.memory_held, stats.crashes, stats.jobs_failed), (0, 0, 0));
    assert_eq!(
        folders(&disk.join("stages")),
        0,
        "prepared stages cannot be opened"
    );
}

mod needs_unshare {
    use super::*;

    #[test]
    fn stages_on_a_full_disk_run_from_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mount = format!("mount -t tmpfs -o size=64m none \"${DISK}\"");
        run_after(&mount, "on_a_full_disk", folder.path());
    }

    #[test]
    fn lanes_work_where_there_is_no_proc() {
        let folder = tempfile::tempdir().unwrap();
        run_after("mount -t tmpfs none /proc", "without_proc", folder.path());
    }
}
