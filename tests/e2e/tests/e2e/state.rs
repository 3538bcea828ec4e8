//! Hosts with shared state.

use crate::fault_proxy::{FaultProxy, StoreFault};
use crate::harness::{STUCK, Scratch, binary, events, frostline, series};
use crate::s3::{Moto, with_credentials};
use frostline_e2e::{HostProcess, finish};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// State of hosts in a bucket.
const STATE: &str = "s3://photos/frostline";

/// Starts two hosts on `state`, each with a separate local folder.
pub(crate) fn hosts(
    scratch: &Scratch,
    state: &str,
    start: impl Fn(&[&str]) -> HostProcess,
) -> [HostProcess; 2] {
    ["one", "two"].map(|name| {
        let local = scratch.path(name);
        start(&["--state", state, "--local", local.to_str().unwrap()])
    })
}

fn flags<'a>(host: &'a HostProcess, url: &'a str) -> [&'a str; 4] {
    ["--host", url, "--token-file", host.token_file().to_str().unwrap()]
}

fn guests(host: &HostProcess) -> Vec<String> {
    let url = host.url();
    let run = finish(
        frostline()
            .args(["guest", "list", "--json"])
            .args(flags(host, &url)),
    )
    .unwrap();
    let guests = run.objects().expect(&run.stderr);
    let name = |guest: &Value| guest["name"].as_str().unwrap().to_owned();
    guests.iter().map(name).collect()
}

pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < STUCK, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Checks that uploads to one host are served by the other, and that a job there uploads nothing.
pub(crate) fn check_shared_state(scratch: &Scratch, mut hosts: [HostProcess; 2], data: &[&str]) {
    let train = |host: &HostProcess| {
        let url = host.url();
        let arguments = [&flags(host, &url)[..], &["--split", "features"], data].concat();
        events(&scratch.train(&arguments))
    };
    let sent = |events: &[Value]| {
        let uploads = events.iter().filter(|event| event["event"] == "upload");
        uploads.filter(|event| event["skipped"] == false).count()
    };
    assert_eq!(sent(&train(&hosts[0])), 2);
    let names = guests(&hosts[0]);
    assert_eq!(names.len(), 1);
    until("the guest", || guests(&hosts[1]) == names);
    // Changes are applied in order: the model was uploaded after the guest.
    let url = hosts[1].url();
    until("the model", || sent(&train(&hosts[1])) == 0);
    let run = finish(
        frostline()
            .args(["guest", "remove", &names[0]])
            .args(flags(&hosts[1], &url)),
    );
    assert_eq!(run.as_ref().unwrap().code, Some(0), "{run:?}");
    until("its removal", || guests(&hosts[0]).is_empty());
    // After a crash of either host, the other has all state.
    hosts[1].kill().unwrap();
    assert_eq!(sent(&train(&hosts[0])), 1);
    assert_eq!(guests(&hosts[0]), names);
}

#[test]
fn two_hosts_share_a_directory() {
    let scratch = Scratch::with_photos(4, 1);
    let state = scratch.path("shared");
    let start = |arguments: &[&str]| scratch.host(arguments);
    let hosts = hosts(&scratch, state.to_str().unwrap(), start);
    check_shared_state(&scratch, hosts, &[]);
}

/// Starts a host that reaches buckets at `endpoint` and serves the photos of the test.
fn host_at(scratch: &Scratch, endpoint: &str, arguments: &[&str]) -> HostProcess {
    let mut command = Command::new(binary());
    with_credentials(&mut command, endpoint);
    let photos = scratch.path("photos");
    HostProcess::start_as(command, scratch.folder(), photos.to_str().unwrap(), arguments).unwrap()
}

mod long {
    use super::*;

    #[test]
    fn two_hosts_share_a_bucket() {
        let scratch = Scratch::with_photos(4, 1);
        let moto = Moto::start(&scratch);
        let start = |arguments: &[&str]| host_at(&scratch, &moto.url, arguments);
        let hosts = hosts(&scratch, STATE, start);
        check_shared_state(&scratch, hosts, &[]);

        // A backup needs no credentials except those in the hosts' configuration.
        let (config, keys) = (scratch.path("host.toml"), scratch.path("keys"));
        let lines = "[default]\naws_access_key_id = test\naws_secret_access_key = a-secret-key\n";
        fs::write(&keys, lines).unwrap();
        let lines = format!("[store.photos]\nendpoint = {:?}\nkeys = {keys:?}\n", moto.url);
        fs::write(&config, lines).unwrap();
        let mut backup = frostline();
        backup.args(["admin", "state", "backup", STATE]).args([
            &scratch.path("backup"),
            Path::new("--config"),
            &config,
        ]);
        let run = finish(&mut backup).unwrap();
        assert!(run.stdout.starts_with("backed up"), "{run:?}");
    }

    /// The guest and the network are in the local folder.
    #[test]
    fn a_job_after_a_restart_needs_no_state() {
        let scratch = Scratch::with_photos(4, 1);
        let moto = Moto::start(&scratch);
        let state = FaultProxy::start(moto.url.strip_prefix("http://").unwrap().parse().unwrap());
        let local = scratch.path("local");
        let places = ["--state", STATE, "--local", local.to_str().unwrap()];
        let train = |host: &HostProcess| {
            let url = host.url();
            let arguments = [&flags(host, &url)[..], &["--split", "features"]].concat();
            series(&events(&scratch.train(&arguments)), "step", "loss")
        };
        let mut host = host_at(&scratch, &state.url(), &places);
        let losses = train(&host);
        host.kill().unwrap();
        let host = host_at(&scratch, &state.url(), &places);
        state.set(StoreFault::Hangs);
        assert_eq!(train(&host), losses);
    }
}
