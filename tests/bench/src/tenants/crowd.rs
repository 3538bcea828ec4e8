//! Measures peak memory and failed jobs with 1 to 32 concurrent tenants.

use super::{BUDGET, baseline, offer};
use crate::fleet::load::Job;
use crate::fleet::{Fleet, MIB, Metrics, Setting, Subject, Tenant};
use crate::report::{Report, shown};
use anyhow::Result;
use frostline_wire::Terms;
use std::time::{Duration, Instant};

/// Concurrent tenants.
const FULL: [usize; 4] = [1, 4, 16, 32];
const QUICK: [usize; 2] = [1, 32];
pub(super) const MOST: usize = 32;

/// Samples in each tenant's job.
const IMAGES: usize = 16;

/// The batch size of jobs with fixed batches.
pub(super) const LARGE: usize = 64;

pub(super) const JOB_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum number of failures to print.
const SHOWN: usize = 3;

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let fleet = Fleet::start(&Setting::with_budget(BUDGET), &report.photos()).await?;
    let subjects = offer(&fleet, report)?;
    let tenants = fleet.tenants("crowd", MOST).await?;
    let counts = if report.quick() { &QUICK[..] } else { &FULL[..] };
    let watch = fleet.watch();
    let mut failures = 0;
    for count in counts {
        let some = tenants.get(..*count).unwrap_or_default();
        failures = jobs(&fleet, some, &subjects, None).await;
    }
    let one = subjects.last().map(std::slice::from_ref).unwrap_or_default();
    failures += jobs(&fleet, &tenants, one, None).await;
    let large = jobs(&fleet, &tenants, &subjects, Some(LARGE)).await;
    let (peak, kills) = (watch.peak() as f64, fleet.oom_kills());
    let over = (peak - BUDGET as f64).max(0.0) / MIB;
    println!(
        "peak memory of host and lanes: {:.0} MiB of {}, {over:.1} above the budget; processes killed for memory: {}\n",
        peak / MIB,
        BUDGET >> 20,
        kills.map_or("not counted".to_owned(), |kills| kills.to_string())
    );
    report.set("peak_mib", peak / MIB);
    report.set("peak_over_budget_mib", over);
    report.set("oom_kills", kills);
    report.set("failures_32", failures);
    report.set("failures_host_fixed_large", large);
    predictions(report, &fleet.metrics()?);
    drop(fleet);
    tokio::task::block_in_place(|| baseline::run(report, &subjects))
}

/// Runs one job per tenant concurrently and returns the number of failures.
async fn jobs(fleet: &Fleet, tenants: &[Tenant], subjects: &[Subject], fixed: Option<usize>) -> usize {
    let terms = Terms {
        fixed_batch: fixed,
        ..Terms::default()
    };
    let pairs = tenants.iter().zip(subjects.iter().cycle());
    let jobs: Vec<Job<'_>> = pairs
        .map(|(tenant, subject)| Job {
            terms,
            concurrent_requests: 1,
            ..Job::usual(tenant, subject)
        })
        .collect();
    let (watch, started) = (fleet.watch(), Instant::now());
    let failed = fleet.crowd(&jobs, IMAGES, JOB_TIMEOUT).await;
    println!(
        "{:>2} tenants on {} networks, {}: {:>5.1} s, {:>5.0} MiB, {} failed",
        tenants.len(),
        subjects.len(),
        fixed.map_or("host-chosen batches".to_owned(), |rows| format!(
            "batches of {rows}"
        )),
        started.elapsed().as_secs_f64(),
        watch.peak() as f64 / MIB,
        failed.len()
    );
    for error in failed.iter().take(SHOWN) {
        println!("    {error}");
    }
    failed.len()
}

/// Reports the host's own error of predicted memory.
fn predictions(report: &mut Report, metrics: &Metrics) {
    let (error, misses) = (
        metrics.value("lane_memory_error_p95"),
        metrics.value("lane_memory_misses_total"),
    );
    println!(
        "predicted memory of engine batches: relative error {} (p95), {} batches exceeded the prediction\n",
        shown(error),
        shown(misses)
    );
    report.set("memory_error_p95", error);
    report.set("memory_misses", misses);
}
