//! Lanes of a host in child processes.

use crate::harness::{Scratch, events, series};
use frostline_e2e::HostProcess;
use std::path::Path;
use std::process::Command;

#[test]
fn a_job_does_not_notice_that_lanes_died() {
    let scratch = Scratch::with_photos(6, 2);
    let host = scratch.host(&[]);
    let flags = [
        "--host",
        &host.url(),
        "--token-file",
        host.token_file().to_str().unwrap(),
        "--split",
        "features",
    ];
    let undisturbed = events(&scratch.train(&flags));
    let lanes = processes_of(&host);
    assert!(
        !lanes.is_empty(),
        "expected child processes for the lanes of `serve`"
    );
    assert!(
        Command::new("kill")
            .arg("-9")
            .args(&lanes)
            .status()
            .unwrap()
            .success()
    );
    let disturbed = events(&scratch.train(&flags));
    assert_eq!(
        series(&disturbed, "step", "loss"),
        series(&undisturbed, "step", "loss")
    );
    assert!(processes_of(&host).iter().any(|lane| !lanes.contains(lane)));
}

#[test]
fn lanes_are_killed_before_the_host_if_memory_runs_out() {
    let scratch = Scratch::with_photos(1, 1);
    let host = scratch.host(&[]);
    let score = |process: &str| -> i32 {
        let score = std::fs::read_to_string(format!("/proc/{process}/oom_score_adj"));
        score.unwrap().trim().parse().unwrap()
    };
    let of_host = score(&host.id().to_string());
    let lanes = processes_of(&host);
    assert!(!lanes.is_empty());
    for lane in lanes {
        assert_eq!(score(&lane), (of_host + 500).min(1000));
    }
}

/// Returns the IDs of the host's child processes.
fn processes_of(host: &HostProcess) -> Vec<String> {
    let threads = Path::new("/proc").join(host.id().to_string()).join("task");
    let children = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap()
    };
    let all: Vec<String> = std::fs::read_dir(threads).unwrap().map(children).collect();
    all.iter()
        .flat_map(|ids| ids.split_whitespace())
        .map(str::to_owned)
        .collect()
}
