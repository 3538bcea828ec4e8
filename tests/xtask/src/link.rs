//! Simulates a slow link in user space: relays a loopback port to another address at a fixed rate.

use anyhow::{Context, Result, bail};
use frostline_e2e::Link;
use std::net::SocketAddr;
use std::thread;

const USAGE: &str = "usage: cargo xtask link PORT TO MBIT, such as: cargo xtask link 8444 127.0.0.1:8443 20";

/// Runs `cargo xtask link PORT TO MBIT`, which relays until interrupted.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [port, target, rate] = arguments else {
        bail!("{USAGE}");
    };
    let port: u16 = port
        .parse()
        .with_context(|| format!("invalid port '{port}'; {USAGE}"))?;
    let target: SocketAddr = target
        .parse()
        .with_context(|| format!("invalid address '{target}'; {USAGE}"))?;
    let megabits: u64 = rate
        .parse()
        .with_context(|| format!("invalid rate '{rate}'; {USAGE}"))?;
    let link = Link::listen(port, target, Some(megabits * 1_000_000))
        .with_context(|| format!("cannot listen on port {port}"))?;
    println!(
        "{} relays to {target} at {megabits} Mbit/s in each direction until Ctrl-C",
        link.url()
    );
    loop {
        thread::park();
    }
}
