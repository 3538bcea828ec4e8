//! Jobs on several hosts, some of which die, stop answering or join late.

use crate::harness::{Scratch, binary, demo, events, frostline, series};
use frostline_e2e::{HostProcess, finish};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Starts `count` hosts with the same photos and token, each with separate state.
pub(crate) fn start_hosts(scratch: &Scratch, count: usize) -> Vec<HostProcess> {
    let mut hosts: Vec<HostProcess> = Vec::new();
    for number in 0..count {
        let folder = scratch.path(&format!("host-{number}"));
        std::fs::create_dir(&folder).unwrap();
        if let Some(first) = hosts.first() {
            std::fs::copy(first.token_file(), folder.join("token")).unwrap();
        }
        let photos = scratch.path("photos");
        hosts.push(HostProcess::start(&binary(), &folder, photos.to_str().unwrap(), &[]).unwrap());
    }
    hosts
}

/// Returns the flags that name all hosts and their token.
pub(crate) fn host_flags(hosts: &[HostProcess]) -> Vec<String> {
    let token = hosts[0].token_file().to_str().unwrap().to_owned();
    let urls = hosts.iter().flat_map(|host| ["--host".to_owned(), host.url()]);
    urls.chain(["--token-file".to_owned(), token]).collect()
}

/// Returns the reported states of the host at `url`.
fn states(events: &[serde_json::Value], url: &str) -> Vec<String> {
    let of_host = |event: &&serde_json::Value| event["event"] == "host" && event["host"] == url;
    let state = |event: &serde_json::Value| event["state"].as_str().unwrap().to_owned();
    events.iter().filter(of_host).map(state).collect()
}

#[test]
fn the_same_host_twice_is_refused() {
    let scratch = Scratch::with_photos(4, 2);
    let host = scratch.host(&[]);
    let (url, token) = (host.url(), host.token_file().to_str().unwrap().to_owned());
    let flags = ["--host", &url, "--host", &url, "--token-file", &token];
    scratch.assert_failed(&scratch.train(&flags), &[&url, "duplicate host"]);
}

mod needs_unshare {
    use super::*;
    use frostline_needs::in_mount_namespace;

    #[test]
    fn hosts_with_separate_copies_of_the_data_serve_one_job() {
        let scratch = Scratch::with_photos(10, 4);
        let [photos, copy] = ["photos", "copy"].map(|name| scratch.path(name));
        let copied = finish(Command::new("cp").arg("-a").args([&photos, &copy])).unwrap();
        assert_eq!(copied.code, Some(0), "{copied:?}");
        let mut hosts = start_hosts(&scratch, 1);
        // The second host has the copy at the same path, as on another machine.
        let folder = scratch.path("other");
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(hosts[0].token_file(), folder.join("token")).unwrap();
        let mount = "mount --bind \"$COPY\" \"$PHOTOS\"";
        let mut other = in_mount_namespace(mount, binary());
        other.env("COPY", &copy).env("PHOTOS", &photos);
        hosts.push(HostProcess::start_as(other, &folder, photos.to_str().unwrap(), &[]).unwrap());
        let all = host_flags(&hosts);
        let mut flags: Vec<&str> = all.iter().map(String::as_str).collect();
        flags.extend(["--epochs", "2", "--split", "features"]);
        let alone = [&flags[..2], &flags[4..]].concat();
        let expected = events(&scratch.train(&alone));
        let run = events(&scratch.train(&flags));
        assert_eq!(series(&run, "step", "loss"), series(&expected, "step", "loss"));
        assert!(series(&run, "epoch", "skipped").iter().all(|count| *count == 0.0));
        let used = run.iter().filter(|event| event["event"] == "host_time");
        assert_eq!(used.count(), 2);
    }
}

mod long {
    use super::*;

    #[test]
    fn one_of_three_hosts_dies_and_the_job_loses_nothing() {
        let scratch = Scratch::with_photos(16, 4);
        let mut hosts = start_hosts(&scratch, 3);
        let all = host_flags(&hosts);
        let mut flags: Vec<&str> = all.iter().map(String::as_str).collect();
        flags.extend(["--epochs", "6", "--split", "features"]);
        let alone = [&flags[..2], &flags[6..]].concat();
        let expected = events(&scratch.train(&alone));
        let doomed = hosts[1].url();
        let run = events(&scratch.disturbed(&flags, || hosts[1].kill().unwrap()));
        assert_eq!(series(&run, "step", "loss"), series(&expected, "step", "loss"));
        assert_eq!(states(&run, &doomed), ["down"]);
    }

    #[test]
    fn a_job_continues_without_a_host_that_stops_answering() {
        let scratch = Scratch::with_photos(16, 4);
        let hosts = start_hosts(&scratch, 2);
        let all = host_flags(&hosts);
        let mut flags: Vec<&str> = all.iter().map(String::as_str).collect();
        flags.extend(["--epochs", "3", "--split", "features"]);
        let alone = [&flags[..2], &flags[4..]].concat();
        let expected = events(&scratch.train(&alone));
        let signal =
            |name: &str| finish(Command::new("kill").args([name, &hosts[1].id().to_string()])).unwrap();
        let run = events(&scratch.disturbed(&flags, || drop(signal("-STOP"))));
        assert_eq!(series(&run, "step", "loss"), series(&expected, "step", "loss"));
        let given_up = run.iter().filter(|event| event["event"] == "retry");
        let given_up: Vec<_> = given_up.filter(|event| event["host"] == hosts[1].url()).collect();
        assert!(!given_up.is_empty());
    }

    #[test]
    fn a_host_that_is_down_at_first_joins_when_it_is_there() {
        let scratch = Scratch::with_photos(16, 4);
        let mut hosts = start_hosts(&scratch, 2);
        let (address, late) = (hosts[1].address().to_string(), hosts[1].url());
        hosts[1].kill().unwrap();
        let all = host_flags(&hosts);
        let mut flags: Vec<&str> = all.iter().map(String::as_str).collect();
        flags.extend(["--epochs", "100000", "--split", "features"]);
        let mut command = scratch.train_command(&flags);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut until = |words: [&str; 2]| {
            let line = lines.find(|line| words.iter().all(|word| line.as_ref().unwrap().contains(word)));
            line.expect("the job ended early").unwrap()
        };
        assert!(until(["\"host\"", "\"down\""]).contains(&late));
        let photos = scratch.path("photos");
        let flags = ["--listen", &address];
        let again = HostProcess::start(
            &binary(),
            &scratch.path("host-1"),
            photos.to_str().unwrap(),
            &flags,
        )
        .unwrap();
        assert!(until(["\"host\"", "\"up\""]).contains(&late));
        // The host receives the guest before it is used.
        let token = again.token_file().to_str().unwrap();
        let listed =
            finish(frostline().args(["guest", "list", "--json", "--host", &late, "--token-file", token]))
                .unwrap();
        let guests = listed.objects().expect(&listed.stderr);
        assert!(
            guests[0]["name"].as_str().unwrap().starts_with("prefix-"),
            "{guests:?}"
        );
        finish(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_plan_measures_all_hosts_and_goes_on_without_one_that_is_down() {
        let scratch = Scratch::with_photos(8, 2);
        let mut hosts = start_hosts(&scratch, 3);
        let down = hosts[2].url();
        hosts[2].kill().unwrap();
        let mut command = frostline();
        command.args(["plan", "--json", "--freeze", "features", "--data"]);
        command
            .arg(scratch.path("photos"))
            .arg("--model")
            .arg(demo("backbone.onnx"));
        let run = finish(command.args(host_flags(&hosts))).unwrap();
        let plan: serde_json::Value = serde_json::from_str(&run.stdout).expect(&run.stderr);
        assert!(plan["link"]["connections"].as_u64().unwrap() >= 2, "{plan}");
        let rate = |name: &str| plan["link"][name].as_f64().unwrap();
        assert!(
            rate("bytes_per_second") > rate("connection_bytes_per_second"),
            "{plan}"
        );
        assert!(plan["candidates"].as_array().unwrap().len() > 1, "{plan}");
        assert!(plan["choosing_seconds"].as_f64().unwrap() > 0.0, "{plan}");
        // Standard error also contains only JSON objects.
        let told: Vec<serde_json::Value> = run
            .stderr
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        let told = told.iter().find(|told| told["event"] == "host").unwrap();
        assert_eq!(
            (&told["event"], &told["state"], &told["host"]),
            (&"host".into(), &"down".into(), &down.into())
        );
    }
}
