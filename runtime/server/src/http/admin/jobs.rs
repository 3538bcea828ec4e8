//! Handlers that list, show and cancel jobs.

use super::identity::Admin;
use crate::http::answer::{Answer, OBJECT, PAGE, answer_memory};
use crate::metrics::MemorySnapshot;
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::{Path, State};
use frostline_wire::{JobDetail, JobInfo};
use http::StatusCode;
use std::sync::Arc;

/// Lists the jobs of the last 24 hours, sorted by last activity in descending order.
pub(in crate::http) async fn list(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    let memory = answer_memory(&service, "", PAGE).await?;
    Ok(Answer::list(service.operations.jobs.list(), memory))
}

/// Shows a job, and which tenants hold the lanes, memory and permits that the job may wait for. `id` may be
/// abbreviated to a unique prefix.
pub(in crate::http) async fn show(
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
) -> Result<Answer, Refusal> {
    let job = service.operations.jobs.find(&id)?;
    let memory = answer_memory(&service, "", OBJECT).await?;
    Answer::json(&detail(&service, job), memory)
}

/// Cancels a job on this host. `id` may be abbreviated to a unique prefix.
pub(in crate::http) async fn cancel(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(id): Path<String>,
) -> Result<Answer, Refusal> {
    let job = service.operations.jobs.cancel(&id)?;
    admin
        .audit(&service, "job cancelled", &job.tenant, job.id.clone())
        .await;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

fn detail(service: &Service, job: JobInfo) -> JobDetail {
    let (lanes, extractions) = (&service.machine.lanes, &service.scheduling.extractions);
    let memory = MemorySnapshot::read(&service.scheduling.memory);
    let standings = extractions.counts_by_tenant().into_iter();
    let holding = lanes.stats().holding.into_iter();
    JobDetail {
        job,
        lanes: lanes.lanes() as u64,
        lane_holders: holding.map(|(tenant, lanes)| (tenant, lanes as u64)).collect(),
        memory_budget: memory.budget,
        memory_holders: memory.tenants,
        places: service.config.running as u64,
        place_holders: standings
            .map(|(tenant, standing)| (tenant, standing.running as u64))
            .filter(|(_, running)| *running > 0)
            .collect(),
    }
}
