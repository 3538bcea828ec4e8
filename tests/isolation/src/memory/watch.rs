//! Measures the memory of a host, using the ledger and the system.

use crate::footprint::{ALLOWED_BYTES, Footprint};
use crate::scene::Scene;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// Poll interval of the system's figures.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Number of polls of the system per poll of the ledger.
const SYSTEM_POLLS: usize = 20;

/// Peak memory, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryPeak {
    /// Memory in the host's ledger, including the host process.
    pub held: u64,
    /// Anonymous memory of the host and all child processes, or `None` without `/proc`.
    pub anonymous: Option<u64>,
    /// Anonymous memory without a reservation, or 0 without `/proc`. Memory only counts if it exceeds the
    /// reservations before and after a polling interval for the whole interval, because the system and the
    /// ledger cannot be read at the same moment.
    pub unreserved: u64,
}

impl MemoryPeak {
    /// Returns the anonymous memory in addition to the idle base, the reservations and 64 MiB, in bytes.
    pub fn beyond(&self, idle: &Footprint) -> u64 {
        self.unreserved.saturating_sub(idle.unreserved + ALLOWED_BYTES)
    }
}

/// Polls the memory of a host.
pub struct Watch;

impl Watch {
    /// Returns the peak until `stop` is set.
    ///
    /// # Errors
    /// Returns an error if an admin command fails.
    pub async fn run(scene: &Scene, stop: Receiver<bool>) -> Result<MemoryPeak> {
        let mut most = MemoryPeak::default();
        let mut top = scene.activity()?;
        loop {
            let last = *stop.borrow();
            let reserved_before = reserved(&top)?;
            let mut least = None;
            for _ in 0..SYSTEM_POLLS {
                let anonymous = anonymous_of(scene.process()?);
                most.anonymous = most.anonymous.max(anonymous);
                least = [least, anonymous].into_iter().flatten().min();
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            top = scene.activity()?;
            most.held = most.held.max(held(&top)?);
            let reserved = reserved(&top)?.max(reserved_before);
            most.unreserved = most.unreserved.max(least.unwrap_or(0).saturating_sub(reserved));
            if last {
                most.anonymous = most.anonymous.max(peak_of(scene.process()?));
                return Ok(most);
            }
        }
    }
}

/// Returns the memory held by the host's ledger.
fn held(top: &Value) -> Result<u64> {
    let held = top.pointer("/memory/held").and_then(Value::as_u64);
    held.context("the host reports no held memory")
}

/// Returns the memory of the host's process that is not reserved.
pub(super) fn base(scene: &Scene) -> Result<u64> {
    base_of(&scene.admin(&["top", "--once"])?)
}

fn base_of(top: &Value) -> Result<u64> {
    let base = top.pointer("/memory/kinds/base").and_then(Value::as_u64);
    base.context("the host reports no base")
}

/// Returns the reserved memory, without the measured base.
fn reserved(top: &Value) -> Result<u64> {
    Ok(held(top)?.saturating_sub(base_of(top)?))
}

/// Returns the anonymous memory of a host and all child processes that is not reserved.
pub(crate) fn unreserved(scene: &Scene) -> Result<u64> {
    let anonymous = anonymous_of(scene.process()?).context("/proc is not available")?;
    Ok(anonymous.saturating_sub(reserved(&scene.activity()?)?))
}

/// Returns the memory held for a tenant.
pub(super) fn held_by(top: &Value, tenant: &str) -> Result<u64> {
    figure(top, tenant, "memory_bytes")
}

/// Returns the bytes sent to a tenant since the host started.
pub(super) fn sent_by(top: &Value, tenant: &str) -> Result<u64> {
    figure(top, tenant, "answer_bytes")
}

fn figure(top: &Value, tenant: &str, name: &str) -> Result<u64> {
    let tenants = top
        .get("tenants")
        .and_then(Value::as_array)
        .context("no tenants")?;
    let named = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(tenant);
    let found = tenants.iter().find(named);
    Ok(found.and_then(|entry| entry.get(name)?.as_u64()).unwrap_or(0))
}

/// Returns the anonymous memory of a process and all descendants.
pub(super) fn anonymous_of(process: u32) -> Option<u64> {
    let mut bytes = line(process, "RssAnon:")?;
    for task in fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        // Ignore children that have exited.
        bytes += children.filter_map(anonymous_of).sum::<u64>();
    }
    Some(bytes)
}

/// Returns the peak anonymous memory of the host process. Unlike polling, this cannot miss a peak.
fn peak_of(process: u32) -> Option<u64> {
    Some(line(process, "VmHWM:")?.saturating_sub(line(process, "RssFile:")?))
}

/// Returns the bytes in a line of the process status.
fn line(process: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
