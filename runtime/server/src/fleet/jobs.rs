//! Jobs on all hosts. These functions are pure.

use super::Cancellations;
use crate::jobs::{new_job, sort};
use crate::refusal::Refusal;
use frostline_state::HostRecord;
use frostline_wire::{Activity, JobDetail, JobInfo, TenantActivity};
use std::collections::BTreeMap;

/// Returns the jobs of all hosts, the most recently active first. Jobs that were cancelled before a restart of the
/// hosts are included.
pub(crate) fn merged(records: &[HostRecord], cancellations: &Cancellations) -> Vec<JobInfo> {
    let mut jobs: BTreeMap<(String, String), JobInfo> = BTreeMap::new();
    for HostRecord { host, jobs: seen } in records {
        for job in seen {
            let all = jobs.entry((job.tenant.clone(), job.id.clone()));
            let all = all.or_insert_with(|| new_job(&job.tenant, &job.id, job.started_at));
            add(all, job);
            all.hosts.push(host.name.clone());
        }
    }
    for (tenant, id, at) in cancellations.list() {
        let new = new_job(&tenant, &id, at);
        jobs.entry((tenant, id)).or_insert(new).cancelled = true;
    }
    let mut jobs: Vec<JobInfo> = jobs.into_values().collect();
    sort(&mut jobs);
    jobs
}

/// Returns the job whose id starts with `id`.
///
/// # Errors
/// Returns a [`Refusal`] if there is no such job or more than one.
pub(crate) fn find(jobs: Vec<JobInfo>, id: &str) -> Result<JobInfo, Refusal> {
    let mut found = jobs.into_iter().filter(|job| job.id.starts_with(id));
    match (found.next(), found.next()) {
        (Some(job), None) => Ok(job),
        (None, _) => Err(Refusal::not_found(format!(
            "no job {id:?} was seen in the last day; use the id of a job in `frostline admin top`"
        ))),
        (Some(_), Some(_)) => Err(Refusal::request(format!(
            "ambiguous job id {id:?}: more than one job starts with it; use a longer prefix"
        ))),
    }
}

/// Adds the holders of lanes, memory and permits on the hosts of a job.
pub(crate) fn detail(job: JobInfo, records: &[HostRecord]) -> JobDetail {
    let hosts = records
        .iter()
        .filter(|record| job.hosts.contains(&record.host.name));
    let hosts: Vec<&Activity> = hosts.map(|record| &record.host.activity).collect();
    let memory = hosts.iter().filter_map(|host| host.memory.as_ref());
    JobDetail {
        lanes: hosts.iter().map(|host| host.lanes).sum(),
        lane_holders: holders(&hosts, |tenant| tenant.lanes),
        memory_budget: memory.map(|memory| memory.budget).sum(),
        memory_holders: holders(&hosts, |tenant| tenant.memory_bytes),
        places: hosts.iter().map(|host| host.places).sum(),
        place_holders: holders(&hosts, |tenant| tenant.running),
        job,
    }
}

/// Sums what each tenant holds on all hosts.
fn holders(hosts: &[&Activity], held: impl Fn(&TenantActivity) -> u64) -> Vec<(String, u64)> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for tenant in hosts.iter().flat_map(|host| &host.tenants) {
        *all.entry(tenant.name.clone()).or_default() += held(tenant);
    }
    all.into_iter().filter(|(_, held)| *held > 0).collect()
}

/// Adds the figures of a host.
fn add(all: &mut JobInfo, host: &JobInfo) {
    if all.hosts.is_empty() || host.active_at >= all.active_at {
        all.active_at = host.active_at;
        all.split.clone_from(&host.split);
        all.model.clone_from(&host.model);
    }
    all.started_at = all.started_at.min(host.started_at);
    all.queued += host.queued;
    all.running += host.running;
    all.extractions += host.extractions;
    all.images += host.images;
    all.seconds += host.seconds;
}
