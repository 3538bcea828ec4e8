//! Bytes that one tenant makes a host write to its log: requests as fast as they go, of several kinds.

use super::http;
use crate::report::Report;
use crate::run::{binary, text};
use anyhow::{Result, anyhow};
use frostline_e2e::HostProcess;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Clients that ask at once.
const CLIENTS: usize = 8;

/// How long they do.
const TIME: Duration = Duration::from_secs(10);

/// Notes `log_bytes_per_second_max`, that of the worst kind of request.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let long = "g".repeat(4000);
    let kinds = [
        ("answered", "/v1/load".to_owned()),
        ("unknown guest", format!("/v1/guests/{long}")),
        ("unknown path", format!("/v1/{long}")),
        ("bad query", format!("/v1/objects?root={long}")),
        (
            "root that is not granted",
            "/v1/objects?root=s3://other".to_owned(),
        ),
    ];
    println!("\n{:<26} {:>12} {:>14}", "requests", "a second", "log bytes/s");
    let mut worst = 0.0_f64;
    for (name, path) in &kinds {
        let (requests, bytes) = flood(report, path)?;
        println!("{name:<26} {requests:>12.0} {bytes:>14.0}");
        worst = worst.max(bytes);
    }
    report.set("log_bytes_per_second_max", worst);
    Ok(())
}

/// Requests and bytes of log a second.
fn flood(report: &Report, path: &str) -> Result<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    // As a host logs by default; without this it is started more quietly here.
    let mut command = Command::new("env");
    command.arg("RUST_LOG=warn,frostline_server=info").arg(binary()?);
    command.stderr(File::create(&log)?);
    let photos = report.photos().part("train");
    let host = HostProcess::start_as(command, folder.path(), text(&photos)?, &[])?;
    let token = fs::read_to_string(host.token_file())?.trim().to_owned();
    let (address, before) = (host.address(), fs::metadata(&log)?.len());
    let since = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (token, path) = (token.clone(), path.to_owned());
            thread::spawn(move || ask(address, &token, &path, since))
        })
        .collect();
    let mut requests = 0;
    for client in clients {
        requests += client.join().map_err(|_| anyhow!("a client panicked"))??;
    }
    let seconds = since.elapsed().as_secs_f64();
    let bytes = fs::metadata(&log)?.len() - before;
    Ok((requests as f64 / seconds, bytes as f64 / seconds))
}

fn ask(address: SocketAddr, token: &str, path: &str, since: Instant) -> Result<usize> {
    let mut requests = 0;
    while since.elapsed() < TIME {
        http::get(address, token, path)?;
        requests += 1;
    }
    Ok(requests)
}
