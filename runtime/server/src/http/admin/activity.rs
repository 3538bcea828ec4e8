//! Handlers for the current activity, the audit log, and draining.

use super::identity::Admin;
use crate::http::answer::{Answer, OBJECT, PAGE, answer_memory};
use crate::http::queries::AuditQuery;
use crate::http::references::query;
use crate::metrics::{MemorySnapshot, resident_bytes};
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::State;
use frostline_wire::{Activity, MemoryActivity, TenantActivity};
use http::Uri;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of audit entries per answer.
const ENTRIES: usize = 100_000;

/// Shows the current load of the host by tenant.
pub(in crate::http) async fn show(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    // Taken before the memory of the answer is reserved, which it would include otherwise.
    let activity = activity(&service);
    Answer::json(&activity, answer_memory(&service, "", OBJECT).await?)
}

/// Starts to drain the host: new work is refused, and running work finishes.
pub(in crate::http) async fn drain(
    State(service): State<Arc<Service>>,
    admin: Admin,
) -> Result<Answer, Refusal> {
    service.scheduling.drain();
    admin.audit(&service, "host drained", "", "").await;
    show(State(service)).await
}

/// Lists audit entries, oldest first. `?tenant=` selects a tenant, and `?limit=` the number of newest
/// entries.
pub(in crate::http) async fn audit(State(service): State<Arc<Service>>, uri: Uri) -> Result<Answer, Refusal> {
    let wanted: AuditQuery = query(&uri)?;
    let limit = wanted.limit.unwrap_or(ENTRIES).min(ENTRIES);
    let audit = &service.operations.audit;
    let mut memory = answer_memory(&service, "", PAGE).await?;
    let entries = audit.last(wanted.tenant.as_deref(), limit, &mut memory).await?;
    Ok(Answer::list(entries, memory))
}

/// Collects the current load of the host.
fn activity(service: &Service) -> Activity {
    let (extractions, counters) = (
        &service.scheduling.extractions,
        &service.operations.metrics.tenants,
    );
    let (lanes, all, standings) = (
        &service.machine.lanes,
        extractions.counts(),
        extractions.counts_by_tenant(),
    );
    let stats = lanes.stats();
    let waited: BTreeMap<String, Duration> = stats.waited.iter().cloned().collect();
    let used: BTreeMap<String, Duration> = stats.device_time.iter().cloned().collect();
    let memory = MemorySnapshot::read(&service.scheduling.memory);
    let holders: BTreeMap<String, u64> = memory.tenants.iter().cloned().collect();
    let known = counters.names().chain(standings.keys().cloned());
    let names: BTreeSet<String> = known.chain(holders.keys().cloned()).collect();
    let tenant = |name: String| {
        let standing = standings.get(&name).copied().unwrap_or_default();
        let usage = counters.usage(&name);
        TenantActivity {
            running: standing.running as u64,
            queued: standing.queued as u64,
            cpu_seconds: usage.guest_cpu_seconds,
            device_seconds: used.get(&name).map_or(0.0, Duration::as_secs_f64),
            memory_bytes: holders.get(&name).copied().unwrap_or(0),
            waited_seconds: waited.get(&name).map_or(0.0, Duration::as_secs_f64),
            name,
            extractions: usage.extractions,
            samples: usage.images,
            answer_bytes: usage.sent_bytes,
        }
    };
    Activity {
        stopping: extractions.is_draining(),
        places: service.config.running as u64,
        running: all.running as u64,
        queued: all.queued as u64,
        lanes: lanes.lanes() as u64,
        lane_queue: stats.queued as u64,
        memory_bytes: resident_bytes(),
        memory: Some(of_memory(&memory)),
        device_memory: service.machine.device_memory(),
        failing_roots: service.operations.roots.failing(),
        tenants: names.into_iter().map(tenant).collect(),
    }
}

fn of_memory(memory: &MemorySnapshot) -> MemoryActivity {
    let kinds = memory.held.iter();
    MemoryActivity {
        budget: memory.budget,
        held: memory.held_in_all(),
        waiting: memory.waiting as u64,
        kinds: kinds.map(|(kind, bytes)| ((*kind).to_owned(), *bytes)).collect(),
    }
}
