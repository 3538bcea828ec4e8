//! Handlers that list, show and cancel jobs on all hosts of the state.

use super::identity::Admin;
use crate::fleet::{detail, find, merged};
use crate::http::answer::{Answer, PAGE, answer_memory};
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::{Path, State};
use http::StatusCode;
use std::sync::Arc;

/// Lists the jobs of the last 24 hours on all hosts, sorted by last activity in descending order. Other hosts are
/// shown as of up to ten seconds ago, with up to 64 jobs each.
pub(in crate::http) async fn list(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    let fleet = &service.fleet;
    let own = fleet.own_record(&service);
    let memory = answer_memory(&service, "", PAGE + fleet.records_bytes().await).await?;
    let records = fleet.records(own).await;
    Ok(Answer::list(merged(&records, &fleet.cancellations), memory))
}

/// Shows a job, and which tenants hold the lanes, memory and permits on its hosts that the job may wait for. `id`
/// may be abbreviated to a unique prefix.
pub(in crate::http) async fn show(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
) -> Result<Answer, Refusal> {
    let fleet = &service.fleet;
    let own = fleet.own_record(&service);
    let memory = answer_memory(&service, "", PAGE + fleet.records_bytes().await).await?;
    let records = fleet.records(own).await;
    let job = find(merged(&records, &fleet.cancellations), &id)?;
    Answer::json(&detail(job, &records), memory)
}

/// Cancels a job on all hosts, which then refuse its requests for at least a day, including after a restart. `id`
/// may be abbreviated to a unique prefix.
pub(in crate::http) async fn cancel(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(id): Path<String>,
) -> Result<Answer, Refusal> {
    let fleet = &service.fleet;
    let own = fleet.own_record(&service);
    let _memory = answer_memory(&service, "", fleet.records_bytes().await).await?;
    let records = fleet.records(own).await;
    let job = find(merged(&records, &fleet.cancellations), &id)?;
    let at = service.clock.latest();
    fleet.cancellations.cancel(&job.tenant, &job.id, at).await?;
    admin.audit(&service, "job cancelled", &job.tenant, job.id).await;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}
