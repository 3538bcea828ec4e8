//! Runs many tenants on a host with child lanes, in a memory cgroup limited to the budget. Measures peak
//! memory, failed jobs, fairness of device time, and rates with host-chosen and fixed batches.

mod baseline;
mod crowd;
mod fairness;
mod rates;
mod simulated;
mod simulator;
mod weights;

use crate::fleet::{Fleet, Setting, Subject};
use crate::networks::{NETWORKS, QUICK};
use crate::report::Report;
use anyhow::Result;
use std::time::Duration;

/// The memory of HAPI's GPU for jobs is unknown. A storage host with this budget is small.
const BUDGET: u64 = 4 << 30;

/// The parts of this benchmark.
pub(crate) const PARTS: [&str; 5] = ["simulated", "crowd", "rates", "fairness", "weights"];

/// Concurrent tenants for rates and fairness.
const TENANTS: usize = 8;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    if let Some(file) = report.extract() {
        baseline::extract(file)?;
        std::process::exit(0);
    }
    if report.has("simulated") {
        simulated::run(report);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        report.set("budget_mib", BUDGET >> 20);
        if report.has("crowd") {
            crowd::run(report).await?;
        }
        if report.has("rates") || report.has("fairness") {
            shared(report).await?;
        }
        if report.has("weights") {
            weights::run(report).await?;
        }
        Ok(())
    })
}

/// Runs the parts that share a host.
async fn shared(report: &mut Report) -> Result<()> {
    let fleet = Fleet::start(&Setting::with_budget(BUDGET), &report.photos()).await?;
    let subjects = offer(&fleet, report)?;
    if report.has("rates") {
        rates::run(report, &fleet, &subjects).await?;
    }
    if report.has("fairness") {
        fairness::run(report, &fleet, &subjects).await?;
    }
    Ok(())
}

/// Publishes the networks on the host. Quick runs use the first [`QUICK`] networks.
fn offer(fleet: &Fleet, report: &Report) -> Result<Vec<Subject>> {
    let count = if report.quick() { QUICK } else { NETWORKS.len() };
    NETWORKS
        .iter()
        .take(count)
        .map(|name| fleet.offer(name))
        .collect()
}

/// Returns a duration of `seconds`. Quick runs use a quarter.
fn span(report: &Report, seconds: u64) -> Duration {
    Duration::from_secs(if report.quick() {
        seconds.div_ceil(4)
    } else {
        seconds
    })
}
