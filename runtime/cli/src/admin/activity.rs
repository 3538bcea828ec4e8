//! `frostline admin top`, `drain` and `audit`, which show the load, drain a host and show the audit log.

use super::console::confirm;
use crate::output::{bytes, clear, is_terminal, print_each, print_json, print_table, stdout};
use anyhow::Result;
use frostline_client::AdminClient;
use frostline_job::utc;
use frostline_wire::{Activity, AuditEntry, MemoryActivity, MemoryLoad, TenantActivity};
use std::io::Write;
use std::time::{Duration, Instant};

/// Refresh interval of the activity.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the current activity with rates since the previous refresh until it is interrupted. The output is
/// printed only once if standard output is not a terminal, unless `json` is set.
pub(super) async fn top(client: &AdminClient, once: bool, json: bool) -> Result<()> {
    let once = once || !json && !is_terminal();
    let mut before: Activity = client.get("/v1/activity", &[]).await?;
    let mut seen = Instant::now();
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        let now: Activity = client.get("/v1/activity", &[]).await?;
        let seconds = seen.elapsed().as_secs_f64();
        seen = Instant::now();
        if json {
            print_json(&now)?;
        } else {
            show(&before, &now, seconds, !once)?;
        }
        if once {
            return Ok(());
        }
        before = now;
    }
}

/// Drains the host, and waits until no extraction is running.
pub(super) async fn drain(client: &AdminClient, yes: bool, json: bool) -> Result<()> {
    confirm(yes, "Refuse new work on this host until the next restart?")?;
    let mut activity: Activity = client.post("/v1/drain", &()).await?;
    while activity.running > 0 {
        if !json {
            tell!("{} extractions are still running", activity.running);
        }
        tokio::time::sleep(REFRESH_INTERVAL).await;
        activity = client.get("/v1/activity", &[]).await?;
    }
    if json {
        return Ok(print_json(&activity)?);
    }
    say!("no extraction is running; the host can be stopped");
    Ok(())
}

pub(super) async fn audit(
    client: &AdminClient,
    tenant: Option<String>,
    limit: usize,
    json: bool,
) -> Result<()> {
    let limit = limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(tenant.as_deref().map(|tenant| ("tenant", tenant)));
    let entries: Vec<AuditEntry> = client.get("/v1/audit", &query).await?;
    if json {
        return Ok(print_each(&entries)?);
    }
    let row = |entry: &AuditEntry| {
        let AuditEntry {
            at,
            host,
            who,
            what,
            tenant,
            detail,
        } = entry;
        vec![
            utc(*at),
            host.clone(),
            who.clone(),
            what.clone(),
            tenant.clone(),
            detail.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    print_table(
        &["AT (UTC)", "HOST", "WHO", "WHAT", "TENANT", "DETAIL"],
        &[false; 6],
        &rows,
    )?;
    Ok(())
}

fn show(before: &Activity, now: &Activity, seconds: f64, again: bool) -> Result<()> {
    if again {
        clear()?;
    }
    let mut stdout = stdout();
    let resident = now
        .memory_bytes
        .map(|memory| format!(", {} of memory", bytes(memory)));
    let state = if now.stopping { "drained" } else { "serving" };
    writeln!(
        stdout,
        "{state}: {}/{} running, {} queued; {} lanes, {} batches queued{}",
        now.running,
        now.places,
        now.queued,
        now.lanes,
        now.lane_queue,
        resident.unwrap_or_default()
    )?;
    if let Some(memory) = &now.memory {
        writeln!(stdout, "{}", held(memory))?;
    }
    if let Some(MemoryLoad { budget, held }) = now.device_memory {
        writeln!(stdout, "GPU memory: {} of {} held", bytes(held), bytes(budget))?;
    }
    for root in &now.failing_roots {
        writeln!(
            stdout,
            "{} has failed for {} s: {}: {}",
            root.root, root.seconds, root.fault, root.error
        )?;
    }
    let rows: Vec<Vec<String>> = now
        .tenants
        .iter()
        .map(|tenant| row(before, tenant, seconds))
        .collect();
    let header = [
        "TENANT",
        "RUNNING",
        "QUEUED",
        "IMAGES/S",
        "SENT/S",
        "IMAGES",
        "SENT",
        "DEVICE",
        "GUEST CPU",
        "MEMORY",
        "WAITED",
    ];
    print_table(
        &header,
        &[false, true, true, true, true, true, true, true, true, true, true],
        &rows,
    )?;
    Ok(())
}

fn row(before: &Activity, now: &TenantActivity, seconds: f64) -> Vec<String> {
    let then = before.tenants.iter().find(|tenant| tenant.name == now.name);
    let (samples, sent) = then.map_or((0, 0), |then| (then.samples, then.answer_bytes));
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    vec![
        now.name.clone(),
        now.running.to_string(),
        now.queued.to_string(),
        format!("{:.1}", rate(now.samples, samples)),
        bytes(rate(now.answer_bytes, sent) as u64),
        now.samples.to_string(),
        bytes(now.answer_bytes),
        format!("{:.1} s", now.device_seconds),
        format!("{:.1} s", now.cpu_seconds),
        bytes(now.memory_bytes),
        format!("{:.1} s", now.waited_seconds),
    ]
}

/// Describes the memory budget and its reservations.
fn held(memory: &MemoryActivity) -> String {
    let MemoryActivity {
        budget,
        held,
        waiting,
        kinds,
    } = memory;
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(_, held)| **held > 0)
        .map(|(kind, held)| format!("{kind} {}", bytes(*held)))
        .collect();
    let (held, budget) = (bytes(*held), bytes(*budget));
    format!(
        "memory: {held} of {budget} held ({}), {waiting} waiting",
        kinds.join(", ")
    )
}
