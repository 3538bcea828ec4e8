//! `frostline admin top`, `drain`, `undrain` and `audit`, which show the load of all hosts of a state, drain a host and
//! show the audit log.

use super::console::{confirm, done};
use crate::output::{bytes, clear, is_terminal, print_each, print_list, print_table};
use anyhow::{Result, bail};
use frostline_client::AdminClient;
use frostline_job::utc;
use frostline_wire::{Activity, AuditEntry, HostInfo, MemoryActivity, MemoryLoad, TenantActivity};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// Refresh interval of the activity.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Seconds without a record after which a host is shown as silent. Hosts write one every ten seconds.
const SILENT: u64 = 30;

/// Difference of clocks in seconds that is shown.
const SKEW: u64 = 60;

/// Shows the current activity of all hosts with rates since the previous refresh until it is interrupted.
pub(super) async fn top(client: &AdminClient, once: bool, json: bool) -> Result<()> {
    refresh(client, "/v1/hosts", once, json, hosts).await
}

/// Gets the list at `path` every second and prints it as JSON, or with `show`, until it is interrupted. `show` receives
/// the previous list, the current list and the seconds in between. The output is printed only once if standard output
/// is not a terminal, unless `json` is set.
pub(super) async fn refresh<T: Serialize + DeserializeOwned>(
    client: &AdminClient,
    path: &str,
    once: bool,
    json: bool,
    show: fn(&[T], &[T], f64) -> Result<()>,
) -> Result<()> {
    let once = once || !json && !is_terminal();
    let mut before: Vec<T> = client.get(path, &[]).await?;
    let mut seen = Instant::now();
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        let now: Vec<T> = client.get(path, &[]).await?;
        let seconds = seen.elapsed().as_secs_f64();
        seen = Instant::now();
        if json {
            print_each(&now)?;
        } else {
            if !once {
                clear()?;
            }
            show(&before, &now, seconds)?;
        }
        if once {
            return Ok(());
        }
        before = now;
    }
}

/// Drains a host, and waits until no extraction is running on it. Without `name`, this is the host that is asked.
pub(super) async fn drain(client: &AdminClient, name: Option<&str>, yes: bool, json: bool) -> Result<()> {
    let shown = name.unwrap_or("this host");
    confirm(
        yes,
        &format!("Refuse new work on {shown} until the next restart?"),
    )?;
    match name {
        Some(name) => client.order(&path(name)).await?,
        None => _ = client.post::<Activity>("/v1/drain", &()).await?,
    }
    loop {
        let hosts: Vec<HostInfo> = client.get("/v1/hosts", &[]).await?;
        // The answering host is the first in the list.
        let number = name.map_or(1, |_| usize::MAX);
        let hosts = hosts.into_iter().take(number);
        let drained: Vec<HostInfo> = hosts
            .filter(|host| name.is_none_or(|name| host.name == name && host.silent_seconds <= SILENT))
            .collect();
        if drained.is_empty() {
            bail!(
                "the host {shown} has not reported for {SILENT} s, so it is unknown whether it still runs; it drains when it can read \
                 the state"
            );
        }
        let activities = drained.iter().map(|host| &host.activity);
        let running: u64 = activities.clone().map(|activity| activity.running).sum();
        if running == 0 && activities.clone().all(|activity| activity.stopping) {
            if json {
                return Ok(print_each(&drained)?);
            }
            say!("no extraction is running; the host can be stopped");
            return Ok(());
        }
        if !json {
            tell!("{running} extractions are still running");
        }
        tokio::time::sleep(REFRESH_INTERVAL).await;
    }
}

/// Lets a host accept work again. Without `name`, this is the host that is asked.
pub(super) async fn undrain(client: &AdminClient, name: Option<&str>, json: bool) -> Result<()> {
    let path = name.map_or_else(|| "/v1/drain".to_owned(), path);
    client.delete(&path).await?;
    done(name.unwrap_or("this host"), "accepts work again", json)
}

fn path(name: &str) -> String {
    format!("/v1/hosts/{name}/drain")
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
    print_list(&entries, json, "AT (UTC)|HOST|WHO|WHAT|TENANT|DETAIL", |entry| {
        let entry = entry.clone();
        [
            utc(entry.at),
            entry.host,
            entry.who,
            entry.what,
            entry.tenant,
            entry.detail,
        ]
    })
}

fn hosts(before: &[HostInfo], now: &[HostInfo], seconds: f64) -> Result<()> {
    now.iter().try_for_each(|host| {
        let earlier = before.iter().find(|earlier| earlier.run == host.run);
        show(earlier.unwrap_or(host), host, seconds)
    })
}

fn show(before: &HostInfo, host: &HostInfo, seconds: f64) -> Result<()> {
    let before = &before.activity;
    let now = &host.activity;
    let resident = now
        .memory_bytes
        .map(|memory| format!(", {} of memory", bytes(memory)));
    let state = if now.stopping { "drained" } else { "serving" };
    say!(
        "{}: {state}{}: {}/{} running, {} queued; {} lanes, {} batches queued{}",
        host.name,
        remarks(host),
        now.running,
        now.places,
        now.queued,
        now.lanes,
        now.lane_queue,
        resident.unwrap_or_default()
    );
    if let Some(memory) = &now.memory {
        say!("{}", held(memory));
    }
    if let Some(MemoryLoad { budget, held }) = now.device_memory {
        say!("GPU memory: {} of {} held", bytes(held), bytes(budget));
    }
    for root in &now.failing_roots {
        say!(
            "{} has failed for {} s: {}: {}",
            root.root,
            root.seconds,
            root.fault,
            root.error
        );
    }
    let columns =
        "TENANT|RUNNING>|QUEUED>|IMAGES/S>|SENT/S>|IMAGES>|SENT>|DEVICE>|GUEST CPU>|MEMORY>|WAITED>";
    let tenants = now.tenants.iter();
    print_table(columns, tenants.map(|tenant| row(before, tenant, seconds)))
}

/// Describes a host that does not write records, or with a wrong clock.
fn remarks(host: &HostInfo) -> String {
    let silent = (host.silent_seconds > SILENT).then(|| format!(", silent for {} s", host.silent_seconds));
    let skew = host.clock_skew_seconds.filter(|skew| skew.unsigned_abs() > SKEW);
    let skew = skew.map(|skew| format!(", clock differs by {skew} s"));
    [silent, skew].into_iter().flatten().collect()
}

fn row(before: &Activity, now: &TenantActivity, seconds: f64) -> [String; 11] {
    let then = before.tenants.iter().find(|tenant| tenant.name == now.name);
    let (samples, sent) = then.map_or((0, 0), |then| (then.samples, then.answer_bytes));
    [
        now.name.clone(),
        now.running.to_string(),
        now.queued.to_string(),
        format!("{:.1}", rate(now.samples, samples, seconds)),
        bytes(rate(now.answer_bytes, sent, seconds) as u64),
        now.samples.to_string(),
        bytes(now.answer_bytes),
        format!("{:.1} s", now.device_seconds),
        format!("{:.1} s", now.cpu_seconds),
        bytes(now.memory_bytes),
        format!("{:.1} s", now.waited_seconds),
    ]
}

fn rate(now: u64, then: u64, seconds: f64) -> f64 {
    now.saturating_sub(then) as f64 / seconds
}

/// Describes the memory budget and its reservations.
fn held(memory: &MemoryActivity) -> String {
    let kinds = memory.kinds.iter().filter(|(_, held)| **held > 0);
    let kinds: Vec<String> = kinds
        .map(|(kind, held)| format!("{kind} {}", bytes(*held)))
        .collect();
    format!(
        "memory: {} of {} held ({}), {} waiting",
        bytes(memory.held),
        bytes(memory.budget),
        kinds.join(", "),
        memory.waiting
    )
}
