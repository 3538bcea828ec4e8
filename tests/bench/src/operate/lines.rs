//! Bytes that one tenant makes a host write to its log: requests as fast as they go, of several kinds.

use super::logging::{CLIENTS, TIME, logging_host};
use super::{guest, http};
use crate::report::Report;
use anyhow::{Result, anyhow};
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

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
    if let Some((extractions, bytes)) = guest::flood(report)? {
        println!("{:<26} {extractions:>12.0} {bytes:>14.0}", "guest that logs");
        worst = worst.max(bytes);
    }
    report.set("log_bytes_per_second_max", worst);
    Ok(())
}

/// Requests and bytes of log a second.
fn flood(report: &Report, path: &str) -> Result<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let (host, log) = logging_host(report, folder.path())?;
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
