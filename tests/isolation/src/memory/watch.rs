//! What a host says that it holds, and what the system says that it and its lanes do.

use crate::scene::Scene;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks at the system for one at the host's own figures.
const LOOKS: usize = 20;

/// The most that was seen, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Of what the host's ledger says is held, its own process included.
    pub held: u64,
    /// Of memory without a file behind it, of the host and all processes it started. `None` where there is no `/proc`.
    pub anonymous: Option<u64>,
}

/// Looks at a host until it is told to stop.
pub struct Watch;

impl Watch {
    /// The most that was held while `stop` was not set.
    ///
    /// # Errors
    /// When the host does not answer its admin.
    pub async fn run(scene: &Scene, stop: Receiver<bool>) -> Result<Seen> {
        let mut most = Seen::default();
        loop {
            let last = *stop.borrow();
            most.held = most.held.max(held(&scene.admin(&["top", "--once"])?)?);
            for _ in 0..LOOKS {
                most.anonymous = most.anonymous.max(anonymous_of(scene.process()?));
                tokio::time::sleep(LOOK).await;
            }
            if last {
                most.anonymous = most.anonymous.max(peak_of(scene.process()?));
                return Ok(most);
            }
        }
    }
}

/// What the ledger says is held.
fn held(top: &Value) -> Result<u64> {
    let held = top.pointer("/memory/held").and_then(Value::as_u64);
    held.context("the host does not say what it holds")
}

/// What the ledger says is held for a tenant.
pub(super) fn held_by(top: &Value, tenant: &str) -> Result<u64> {
    let tenants = top
        .get("tenants")
        .and_then(Value::as_array)
        .context("no tenants")?;
    let named = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(tenant);
    let found = tenants.iter().find(named);
    Ok(found
        .and_then(|entry| entry.get("memory_bytes")?.as_u64())
        .unwrap_or(0))
}

/// Memory without a file behind it, of a process and those it started.
fn anonymous_of(process: u32) -> Option<u64> {
    let mut bytes = line(process, "RssAnon:")?;
    for task in fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        // One that has just ended takes nothing.
        bytes += children.filter_map(anonymous_of).sum::<u64>();
    }
    Some(bytes)
}

/// The most that the host's own process ever had, without files: what no look can have missed.
fn peak_of(process: u32) -> Option<u64> {
    Some(line(process, "VmHWM:")?.saturating_sub(line(process, "RssFile:")?))
}

/// Bytes of a line of a process's status.
fn line(process: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
