//! Log lines of a host about an extraction.

use crate::harness::{Scratch, binary, events};
use crate::raw::RawClient;
use frostline_e2e::{HostProcess, finish};
use frostline_needs::built_guest;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Host that writes a JSON log to a file.
struct Logging {
    scratch: Scratch,
    host: HostProcess,
    log: PathBuf,
}

impl Logging {
    fn start() -> Self {
        let scratch = Scratch::with_photos(4, 1);
        let log = scratch.path("log");
        let mut command = Command::new("env");
        command
            .arg("RUST_LOG=info,frostline::guest=debug")
            .arg(binary())
            .stderr(Stdio::from(File::create(&log).unwrap()));
        let photos = scratch.path("photos");
        let host = HostProcess::start_as(command, scratch.folder(), photos.to_str().unwrap(), &[]).unwrap();
        Self { scratch, host, log }
    }

    fn token(&self) -> String {
        let token = fs::read_to_string(self.host.token_file()).unwrap();
        token.trim().to_owned()
    }

    /// Trains to upload everything that an extraction needs.
    fn train(&self, flags: &[&str]) {
        let url = self.host.url();
        let token = self.host.token_file().to_str().unwrap();
        let own = ["--host", &url, "--token-file", token, "--split", "features"];
        events(&self.scratch.train(&[&own, flags].concat()));
    }

    /// Requests the features of one photo within a trace, using the guest and model of an earlier training.
    fn extract(&self, parameters: &str) {
        let mut asker = RawClient::new(self.host.address(), self.host.token_file());
        let root = format!("file://{}", self.scratch.path("photos").display());
        let request = asker.extraction(&root, "features", parameters, 1);
        asker.headers = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
        let mut answer = Vec::new();
        let mut stream = asker.send("POST", "/v1/extractions", &request);
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Stops the host and returns the log lines of the traced extraction.
    fn lines(mut self) -> Vec<Value> {
        let id = self.host.id().to_string();
        assert_eq!(
            finish(Command::new("kill").args(["-TERM", &id])).unwrap().code,
            Some(0)
        );
        assert!(self.host.wait().unwrap().success());
        let log = fs::read_to_string(&self.log).unwrap();
        assert!(!log.contains(&self.token()), "a token in the log");
        let lines = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect(line));
        let ours = |line: &Value| line["span"]["trace"] == TRACE && line["span"]["path"] == "/v1/extractions";
        lines.filter(ours).collect()
    }
}

fn message(line: &Value) -> &str {
    line["fields"]["message"].as_str().unwrap_or_default()
}

/// Asserts that every line names the tenant, the extraction and the guest.
fn assert_labeled(lines: &[Value], guest: &str) {
    let id = lines[0]["span"]["extraction"].as_str().unwrap();
    assert_eq!(id.len(), 16, "{id}");
    for line in lines {
        let span = &line["span"];
        assert_eq!(
            (&span["tenant"], &span["extraction"]),
            (&"default".into(), &id.into()),
            "{line}"
        );
        assert!(span["guest"].as_str().unwrap().starts_with(guest), "{line}");
    }
}

#[test]
fn log_lines_name_tenant_extraction_and_guest() {
    let logging = Logging::start();
    logging.train(&[]);
    let pixels =
        r#"{"resize":128,"crop_height":128,"crop_width":128,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5]}"#;
    logging.extract(pixels);
    let lines = logging.lines();
    assert_labeled(&lines, "prefix-");
    for wanted in ["answered", "extraction ended"] {
        assert!(lines.iter().any(|line| message(line) == wanted), "{lines:?}");
    }
}

mod needs_guests {
    use super::*;

    #[test]
    fn guest_logs_belong_to_their_extraction() {
        let two_stage = built_guest("two-stage");
        let logging = Logging::start();
        logging.train(&["--guest", two_stage.to_str().unwrap(), "--parameters", "stem"]);
        logging.extract("stem");
        let lines = logging.lines();
        assert_labeled(&lines, "two-stage-");
        let own = |line: &&Value| line["target"] == "frostline::guest";
        let logged: Vec<&Value> = lines.iter().filter(own).collect();
        assert_eq!(logged.len(), 1, "{lines:?}");
        assert!(message(logged[0]).contains("strongest activation"), "{logged:?}");
        assert_eq!(logged[0]["fields"]["extraction"], logged[0]["span"]["extraction"]);
    }
}
