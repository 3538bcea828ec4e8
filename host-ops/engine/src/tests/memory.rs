//! A lane process's memory usage.

use super::lane_process::place;
use super::setup::{batch, in_runs_of, one_lane, stage, start};
use crate::LanesConfig;
use frostline_tensor::{GraphExecutor, Tensor};
use std::fs::{metadata, read_dir, read_link, read_to_string};
use std::time::Duration;

const WIDE: usize = 3 << 20;

/// Batch with 50 MB of input and output. glibc's allocator only retains up to 32 MB.
fn wide() -> Tensor {
    batch(WIDE, 1.0)
}

/// Returns the number of pages that the process touched for the first time since the start.
fn faults(process: u32) -> usize {
    let text = read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name in parentheses may contain spaces.
    let (_, fields) = text.rsplit_once(") ").unwrap();
    fields.split(' ').nth(7).unwrap().parse().unwrap()
}

/// Returns the number of resident pages.
fn resident(process: u32) -> usize {
    let text = read_to_string(format!("/proc/{process}/statm")).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Returns the bytes in the window of the process.
fn in_window(process: u32) -> u64 {
    let files = read_dir(format!("/proc/{process}/fd")).unwrap();
    let window = files.map(|file| file.unwrap().path()).find(|file| {
        let target = read_link(file).unwrap_or_default();
        target.to_string_lossy().contains("frostline-lane")
    });
    metadata(window.unwrap()).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_after_another_touches_no_new_memory() {
    // On a busy machine, more than a second can pass between two batches, after which an idle lane releases
    // memory.
    let (_, owner) = start(LanesConfig {
        idle: Duration::from_secs(3_600),
        ..one_lane(place())
    });
    let process = owner.stats().processes[0];
    let lanes = in_runs_of(&owner, WIDE);
    let mut before = 0;
    for _ in 0..4 {
        before = faults(process);
        assert_eq!(lanes.submit(&stage("relu"), wide()).await, Ok(wide()));
    }
    let pages = wide().byte_len() / rustix::param::page_size();
    let touched = faults(process) - before;
    assert!(touched < pages / 8, "{touched} pages for a batch of {pages}");
}

/// Requires root, because lanes hide their descriptors from other processes.
mod needs_root {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lane_holds_no_file_of_the_host() {
        let (_, owner) = start(one_lane(place()));
        owner.submit(&stage("relu"), batch(1, 1.0)).await.unwrap();
        let process = owner.stats().processes[0];
        let own = ["status", "clear_refs"].map(|file| format!("/proc/{process}/{file}"));
        for file in read_dir(format!("/proc/{process}/fd")).unwrap() {
            let target = read_link(file.unwrap().path()).unwrap();
            let target = target.to_string_lossy();
            let anonymous = ["socket:", "pipe:", "/memfd:frostline-lane"];
            let harmless = anonymous.iter().any(|kind| target.starts_with(kind))
                || target == "/dev/null"
                || own.iter().any(|file| target == **file);
            assert!(harmless, "{target}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lane_without_work_gives_its_memory_back() {
        let (_, owner) = start(one_lane(place()));
        let process = owner.stats().processes[0];
        let lanes = in_runs_of(&owner, WIDE);
        lanes.submit(&stage("relu"), wide()).await.unwrap();
        let kept = resident(process);
        let half = wide().byte_len() / rustix::param::page_size() / 2;
        // Never ends if the lane retains the memory.
        while in_window(process) > 0 || resident(process) > kept - half {
            std::thread::yield_now();
        }
        assert_eq!(lanes.submit(&stage("relu"), wide()).await, Ok(wide()));
    }
}
