//! Handlers for the current activity, the hosts of the state, the audit log, and draining.

use super::identity::Admin;
use crate::fleet::activity;
use crate::http::answer::{Answer, OBJECT, PAGE, answer_memory};
use crate::http::queries::AuditQuery;
use crate::http::references::query;
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::{Path, State};
use http::{StatusCode, Uri};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of audit entries per answer.
const ENTRIES: usize = 100_000;

/// Shows the current load of the host by tenant.
pub(in crate::http) async fn show(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    // Taken before the memory of the answer is reserved, which it would include otherwise.
    let activity = activity(&service);
    Answer::json(&activity, answer_memory(&service, "", OBJECT).await?)
}

/// Lists the hosts that share the state with their activity, the answering host first.
pub(in crate::http) async fn hosts(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    let own = service.fleet.own_record(&service);
    let memory = answer_memory(&service, "", PAGE + service.fleet.records_bytes().await).await?;
    let records = service.fleet.records(own).await;
    Ok(Answer::list(
        records.into_iter().map(|record| record.host),
        memory,
    ))
}

/// Starts to drain this host until it restarts: new work is refused, and running work finishes. Does not need the
/// state.
pub(in crate::http) async fn drain(
    State(service): State<Arc<Service>>,
    admin: Admin,
) -> Result<Answer, Refusal> {
    service.scheduling.drain();
    admin.audit(&service, "host drained", "", "").await;
    show(State(service)).await
}

/// Accepts work on this host again. Does not need the state.
pub(in crate::http) async fn undrain(
    State(service): State<Arc<Service>>,
    admin: Admin,
) -> Result<Answer, Refusal> {
    service.scheduling.undrain();
    admin.audit(&service, "host undrained", "", "").await;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// Starts to drain the host of the state with this name until it restarts. The host follows within seconds.
pub(in crate::http) async fn drain_host(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
) -> Result<Answer, Refusal> {
    order(&service, &admin, &name, true).await
}

/// Accepts work on the host of the state with this name again. The host follows within seconds.
pub(in crate::http) async fn undrain_host(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
) -> Result<Answer, Refusal> {
    order(&service, &admin, &name, false).await
}

/// Orders the host `name` to drain, or to accept work again.
async fn order(service: &Service, admin: &Admin, name: &str, drained: bool) -> Result<Answer, Refusal> {
    let records = service.fleet.records(service.fleet.own_record(service)).await;
    let hosts = records.iter().map(|record| &record.host);
    let named = hosts.clone().filter(|host| host.name == name);
    let runs: BTreeSet<String> = named.map(|host| host.run.clone()).collect();
    if runs.is_empty() {
        let known: Vec<&str> = hosts.map(|host| host.name.as_str()).collect();
        let known = known.join(", ");
        return Err(Refusal::not_found(format!(
            "no host {name:?} uses this state; use one of {known}"
        )));
    }
    service.fleet.order(name, runs, drained).await?;
    service
        .fleet
        .follow_order(&service.config.name, &service.scheduling);
    let what = if drained { "host drained" } else { "host undrained" };
    admin.audit(service, what, "", name).await;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
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
