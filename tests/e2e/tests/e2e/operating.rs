//! Operating a host: quotas, `admin top`, audit log, metrics, draining and signals.

use crate::admin_host::AdminHost;
use crate::harness::{Scratch, events, frostline};
use crate::raw::RawClient;
use frostline_e2e::{HostProcess, finish};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

impl AdminHost {
    fn get(&self, path: &str) -> String {
        get(self.host.address(), path)
    }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: host\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn quota<'a>(shown: &'a [Value], key: &str) -> &'a Value {
    shown.iter().find(|entry| entry["key"] == key).unwrap()
}

#[test]
fn an_exceeded_quota_names_the_command_that_raises_it() {
    let place = AdminHost::new();
    let acme = place.add("acme");
    let shown = place.answers(&["quota", "show", "acme"]);
    let default = quota(&shown, "stored_bytes")["value"].as_u64().unwrap();
    assert!(default > 1 << 30);
    for key in ["stored_bytes", "output_bytes"] {
        let set = place.answers(&["quota", "set", "acme", &format!("{key}=1KiB")]);
        assert_eq!(quota(&set, key)["value"], 1024);
        let command = format!("admin quota set acme {key}=");
        place.scratch.assert_failed(&place.train(&acme), &[key, &command]);
        place.answers(&["quota", "set", "acme", &format!("{key}=default")]);
    }
    let shown = place.answers(&["quota", "show", "acme"]);
    assert_eq!(quota(&shown, "stored_bytes")["value"], default);
    assert!(!events(&place.train(&acme)).is_empty());
}

#[test]
fn one_signal_ends_an_admin_command_that_waits() {
    let scratch = Scratch::with_photos(1, 1);
    let socket = scratch.path("admin.sock");
    let silent = UnixListener::bind(&socket).unwrap();
    let mut command = frostline();
    command.args(["admin", "tenant", "list", "--socket"]).arg(&socket);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let (mut connection, _) = silent.accept().unwrap();
    connection.read_exact(&mut [0]).unwrap();
    finish(Command::new("kill").args(["-TERM", &child.id().to_string()])).unwrap();
    // The command is still waiting for an answer, for a minute.
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), Some(130) | None), "{status}");
    drop(connection);
}

#[test]
fn activity_is_shown_and_audited() {
    let place = AdminHost::new();
    let acme = place.add("acme");
    events(&place.train(&acme));
    let socket = place.scratch.path("state/admin.sock");
    let table = finish(frostline().args(["admin", "top", "--socket"]).arg(socket)).unwrap();
    assert!(
        table.code == Some(0) && table.stdout.contains("acme"),
        "prints once without a terminal: {table:?}"
    );
    let top = place.answer(&["top", "--once"]);
    let tenant = &top["tenants"][0];
    assert_eq!(tenant["name"], "acme");
    assert!(tenant["samples"].as_u64().unwrap() > 0 && tenant["answer_bytes"].as_u64().unwrap() > 0);
    assert_eq!(
        (top["running"].as_u64(), top["stopping"].as_bool()),
        (Some(0), Some(false))
    );
    let metrics = place.get("/metrics");
    assert!(
        metrics.contains("frostline_samples_total{") && !metrics.contains("acme"),
        "{metrics}"
    );
    assert!(tenant["cpu_seconds"].as_f64().unwrap() > 0.0);

    let guests = place.answers(&["guest", "list", "acme"]);
    let guest = guests[0]["name"].as_str().unwrap();
    let named = format!("acme/{guest}");
    assert_eq!(
        place.admin(&["guest", "remove", &named]).code,
        Some(1),
        "not confirmed"
    );
    place.answer(&["guest", "remove", &named, "--yes"]);
    assert!(place.answers(&["guest", "list", "acme"]).is_empty());
    assert_eq!(place.answers(&["model", "list", "acme"]).len(), 1);

    let audit = place.admin(&["audit", "--tenant", "acme"]).stdout;
    let entries: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let whats: Vec<&str> = entries
        .iter()
        .map(|entry| entry["what"].as_str().unwrap())
        .collect();
    assert_eq!(whats[0], "tenant added");
    assert!(
        whats.contains(&"guest uploaded") && whats.contains(&"model uploaded"),
        "{whats:?}"
    );
    assert_eq!(whats.last(), Some(&"guest removed"));
    assert!(entries[0]["who"].as_str().unwrap().starts_with("admin uid "));
    assert!(
        entries
            .iter()
            .any(|entry| entry["who"] == "tenant acme at 127.0.0.1")
    );
    let secret = std::fs::read_to_string(&acme).unwrap();
    assert!(!audit.contains(&secret));
}

#[test]
fn a_drained_host_is_not_ready() {
    let place = AdminHost::new();
    assert!(place.get("/readyz").starts_with("HTTP/1.1 200"));
    assert_eq!(place.admin(&["drain"]).code, Some(1), "not confirmed");
    assert_eq!(place.answer(&["drain", "--yes"])["stopping"], true);
    assert!(place.get("/readyz").starts_with("HTTP/1.1 503"));
    assert!(
        place.get("/healthz").starts_with("HTTP/1.1 200"),
        "the host still answers"
    );
}

/// Starts a host with an extraction that keeps running because the client does not read the answer.
fn working_host(scratch: &Scratch, arguments: &[&str]) -> (HostProcess, TcpStream) {
    let photos = scratch.path("photos");
    fs::create_dir_all(&photos).unwrap();
    fs::write(photos.join("large"), vec![7; 1 << 20]).unwrap();
    let host = scratch.host(arguments);
    let samples = (0..64).map(|position| serde_json::json!({"position": position, "key": "large"}));
    let request =
        serde_json::json!({"root": photos, "split": "none", "samples": samples.collect::<Vec<_>>()});
    let asker = RawClient::new(host.address(), host.token_file());
    let mut unread = asker.send("POST", "/v1/extractions", &request.to_string());
    let mut status = [0; 12];
    unread.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    (host, unread)
}

fn terminate(host: &HostProcess) {
    finish(Command::new("kill").args(["-TERM", &host.id().to_string()])).unwrap();
}

#[test]
fn a_host_exits_at_the_drain_deadline() {
    let scratch = Scratch::new();
    let (mut host, _unread) = working_host(&scratch, &["--drain", "0"]);
    terminate(&host);
    assert_eq!(host.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_signal_ends_a_draining_host() {
    let scratch = Scratch::new();
    let (mut host, _unread) = working_host(&scratch, &["--drain", "86400"]);
    terminate(&host);
    while !get(host.address(), "/readyz").starts_with("HTTP/1.1 503") {
        std::thread::yield_now();
    }
    // The host ignores signals in the second after the first one.
    let status = loop {
        terminate(&host);
        if let Some(status) = host.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(130));
}

/// Needs root because a host hides its environment from other users.
mod needs_root {
    use super::*;

    #[test]
    fn a_host_limits_arenas_and_disables_telemetry() {
        let place = AdminHost::new();
        let environment = std::fs::read(format!("/proc/{}/environ", place.host.id())).unwrap();
        let setting = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(b"MALLOC_ARENA_MAX="));
        let arenas: usize = std::str::from_utf8(setting.unwrap()).unwrap().parse().unwrap();
        assert!((2..=8).contains(&arenas), "{arenas}");
        let mut variables = environment.split(|byte| *byte == 0);
        assert!(variables.any(|variable| variable == b"ORT_DISABLE_TELEMETRY=1"));
        assert!(place.get("/healthz").ends_with("ok\n"));
    }
}
