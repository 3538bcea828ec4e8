//! What a state says that a tenant used, beside what its clients counted, when the hosts are killed between jobs and in the middle of one.

use super::http;
use crate::photos::Pretrained;
use crate::report::Report;
use crate::run::{binary, json_lines, series, text};
use anyhow::{Context, Result};
use frostline_e2e::HostProcess;
use frostline_wire::{DayUsage, Usage};
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Jobs, after each of which both hosts are killed.
const JOBS: usize = 2;

/// How long a client asks before its host is killed, as parts of the time between two writes of what a host counted.
const MOMENTS: [u64; 3] = [35, 50, 65];

/// Bytes of one answer.
const ANSWER: u64 = 1 << 20;

/// Two hosts on one state.
struct Hosts {
    folder: PathBuf,
    root: String,
}

impl Hosts {
    fn start(&self, name: &str) -> Result<HostProcess> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
        // The same for both, as one job uses them.
        std::fs::write(folder.join("token"), "t".repeat(64))?;
        let state = self.folder.join("state");
        let flags = ["--state", text(&state)?, "--local", text(&folder)?];
        Ok(HostProcess::start(&binary()?, &folder, &self.root, &flags)?)
    }

    /// What the tenant used until now, as this host is told.
    fn used(&self, name: &str) -> Result<Usage> {
        let socket = self.folder.join(name).join("admin.sock");
        let mut command = Command::new(binary()?);
        command.args(["admin", "--socket", text(&socket)?, "usage", "--json"]);
        // The day may end meanwhile.
        command.args(["--from", "2020-01-01"]);
        let mut sum = Usage::default();
        for day in json_lines(&mut command)? {
            let day: DayUsage = serde_json::from_value(day)?;
            sum += day.usage;
        }
        Ok(sum)
    }
}

/// Notes `usage_error_max`, the largest part that the sums are off by after the hosts were killed between jobs, and
/// `usage_lost_seconds_max`, the most that a host loses that is killed while it answers.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let photos = report.photos().part("train");
    let hosts = Hosts {
        folder: folder.path().to_owned(),
        root: text(&photos)?.to_owned(),
    };
    let (mut bytes, mut worst) = (0.0, 0.0_f64);
    println!("\nafter each job both hosts are killed");
    println!("{:<6} {:>16} {:>16}", "jobs", "clients' bytes", "usage's bytes");
    for job in 1..=JOBS {
        let (one, two) = (hosts.start("one")?, hosts.start("two")?);
        bytes += train(&hosts, [&one, &two])?;
        for name in ["one", "two"] {
            hosts.used(name)?;
        }
        // Dropping kills.
        drop((one, two));
        let again = hosts.start("one")?;
        let used = hosts.used("one")?.sent_bytes;
        drop(again);
        println!("{job:<6} {bytes:>16.0} {used:>16}");
        worst = worst.max((used as f64 - bytes).abs() / bytes);
    }
    report.set("usage_error_max", worst);
    if report.quick() {
        return Ok(());
    }
    let mut lost = 0.0_f64;
    for seconds in MOMENTS {
        lost = lost.max(lost_seconds(&hosts, Duration::from_secs(seconds))?);
    }
    report.set("usage_lost_seconds_max", lost);
    Ok(())
}

/// Trains over both hosts; the bytes that came.
fn train(hosts: &Hosts, both: [&HostProcess; 2]) -> Result<f64> {
    let (pretrained, folder) = (Pretrained::find(), tempfile::tempdir()?);
    let mut command = Command::new(binary()?);
    command.args([
        "train",
        "--json",
        "--validation",
        "0.2",
        "--epochs",
        "2",
        "--split",
        "none",
    ]);
    command.args(["--freeze", pretrained.freeze, "--feature-cache", "off", "--model"]);
    command.arg(&pretrained.file).args(["--data", &hosts.root]);
    for host in both {
        command.args(["--host", &host.url()]);
    }
    command.arg("--token-file").arg(both[0].token_file());
    command.arg("--runs").arg(folder.path().join("runs"));
    command.arg("--out").arg(folder.path().join("tuned.onnx"));
    let events = json_lines(&mut command)?;
    let bytes = series(&events, "done", "bytes_received");
    bytes.first().copied().context("the job did not end")
}

/// Asks one host for bytes until it is killed after `time`; how many seconds of that its usage lacks.
fn lost_seconds(hosts: &Hosts, time: Duration) -> Result<f64> {
    let mut host = hosts.start("one")?;
    let before = hosts.used("one")?.sent_bytes;
    let (address, token): (SocketAddr, String) = (
        host.address(),
        std::fs::read_to_string(host.token_file())?.trim().to_owned(),
    );
    let asking = thread::spawn(move || {
        let path = format!("/v1/probe?bytes={ANSWER}");
        let mut received = 0_u64;
        while let Ok(body) = http::get(address, &token, &path) {
            received += body.len() as u64;
            // A steady rate.
            thread::sleep(Duration::from_millis(50));
        }
        received
    });
    let since = Instant::now();
    thread::sleep(time);
    host.kill()?;
    let took = since.elapsed().as_secs_f64();
    let received = asking
        .join()
        .map_err(|_| anyhow::anyhow!("the client panicked"))?;
    drop(host);
    let again = hosts.start("one")?;
    let used = hosts.used("one")?.sent_bytes - before;
    drop(again);
    let lost = (1.0 - used as f64 / received as f64).max(0.0) * took;
    println!(
        "killed after {took:.0} s: clients received {received} bytes, usage has {used}: the last {lost:.0} s are missing"
    );
    Ok(lost)
}
