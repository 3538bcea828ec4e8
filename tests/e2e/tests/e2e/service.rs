//! A host under a service manager: messages, signals and reloads.

use crate::harness::{STUCK, Scratch, frostline};
use crate::operating::get;
use crate::raw::RawClient;
use crate::state::until;
use frostline_e2e::{Finished, HostProcess, finish};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

/// A host with a configuration file, with the messages that its service manager receives.
struct Service {
    scratch: Scratch,
    host: HostProcess,
    messages: UnixDatagram,
}

impl Service {
    fn start() -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("one")).unwrap();
        fs::create_dir(scratch.path("two")).unwrap();
        write_configuration(&scratch, "one", "");
        let socket = scratch.path("notify");
        let messages = UnixDatagram::bind(&socket).unwrap();
        messages.set_read_timeout(Some(STUCK)).unwrap();
        let mut command = frostline();
        command
            .args(["serve", "--json", "--config"])
            .arg(scratch.path("host.toml"))
            .env("NOTIFY_SOCKET", socket)
            .env("WATCHDOG_USEC", "100000")
            .stderr(fs::File::create(scratch.path("log")).unwrap());
        let host = HostProcess::spawn(command, scratch.path("token")).unwrap();
        Self {
            scratch,
            host,
            messages,
        }
    }

    /// Receives messages until `expected`, and returns those before.
    fn receive_until(&self, expected: &str) -> Vec<String> {
        let mut before = Vec::new();
        let mut message = [0; 256];
        loop {
            let length = self.messages.recv(&mut message).expect(expected);
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            if text == expected {
                return before;
            }
            before.push(text);
        }
    }

    fn signal(&self, name: &str) {
        finish(Command::new("kill").args([name, &self.host.id().to_string()])).unwrap();
    }

    /// Checks the configuration file as `systemctl reload` does.
    fn check(&self) -> Finished {
        let file = self.scratch.path("host.toml");
        finish(frostline().args(["serve", "--check", "--config"]).arg(file)).unwrap()
    }

    /// Returns true if the tenant can list the folder `name`.
    fn lists(&self, name: &str) -> bool {
        let client = RawClient::new(self.host.address(), self.host.token_file());
        let root = self.scratch.path(name);
        let answer = client.get(&format!("/v1/objects?root={}", root.display()));
        answer.get("objects").is_some()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.path("log")).unwrap()
    }
}

fn write_configuration(scratch: &Scratch, data: &str, more: &str) {
    let path = |name: &str| -> PathBuf { scratch.path(name) };
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstate = {:?}\ntoken_file = {:?}\ndata = [{:?}]\n{more}",
        path("state"),
        path("token"),
        path(data)
    );
    fs::write(path("host.toml"), text).unwrap();
}

#[test]
fn sighup_reloads_a_valid_configuration_and_only_that() {
    let service = Service::start();
    let address = service.host.address();
    let failed = |flag: u8| {
        let line = format!("frostline_config_reload_failed {flag}\n");
        until("the outcome of the reload", || {
            get(address, "/metrics").contains(&line)
        });
    };
    assert!(service.lists("one") && !service.lists("two"));
    write_configuration(&service.scratch, "two", "listne = 1\n");
    let checked = service.check();
    assert!(
        checked.code == Some(1) && checked.stderr.contains("listne"),
        "{checked:?}"
    );
    service.signal("-HUP");
    failed(1);
    assert!(service.lists("one") && !service.lists("two"));
    assert!(service.log().contains("listne"), "{}", service.log());

    write_configuration(&service.scratch, "two", "[engine]\nlanes = 1\n");
    assert_eq!(service.check().code, Some(0));
    service.signal("-HUP");
    failed(0);
    assert!(service.lists("two") && !service.lists("one"));
    let log = service.log();
    assert!(log.contains("engine.lanes") && log.contains("restarted"), "{log}");
}

#[test]
fn a_service_manager_is_notified_of_start_watchdog_and_drain() {
    let mut service = Service::start();
    let before = service.receive_until("READY=1");
    assert!(before[0].starts_with("EXTEND_TIMEOUT_USEC="), "{before:?}");
    let before = service.receive_until("WATCHDOG=1");
    assert!(before.is_empty(), "{before:?}");
    service.signal("-TERM");
    let before = service.receive_until("STOPPING=1");
    assert!(before.iter().all(|message| message == "WATCHDOG=1"), "{before:?}");
    let before = service.receive_until("EXTEND_TIMEOUT_USEC=30000000");
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(service.host.wait().unwrap().code(), Some(0));
}
