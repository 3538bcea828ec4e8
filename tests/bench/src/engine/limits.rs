//! Halves the memory limit of lanes under load. Engine batches must shrink without failing jobs.

use super::kills::BUDGET;
use crate::fleet::load::Job;
use crate::fleet::{Fleet, Metrics, Setting};
use crate::proc_status;
use crate::report::{Report, shown};
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;

/// A network for which large batches are efficient on a CPU, so memory grows with the rows of an engine
/// batch. A network with single-row batches could not run with half of the memory.
const NETWORK: &str = "alexnet";

/// Duration of the load. Lanes are sampled in the second third and have half of the memory in the last third.
const SPAN: Duration = Duration::from_secs(9);

/// Maximum number of halvings. A halving has no effect if the sampled peak comes from a trial batch size that
/// the host does not use later.
const HALVINGS: usize = 6;

/// Concurrent requests: work for all lanes.
const OPEN: usize = 8;
const IMAGES: usize = 64;

/// Subsequent jobs, which would fail if the model were in quarantine.
const ROUNDS: usize = 3;
const JOB_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let fleet = Fleet::start(&Setting::with_budget(BUDGET), &report.photos()).await?;
    let (subject, tenant) = (fleet.offer(NETWORK)?, fleet.tenant("halved", 1).await?);
    // Requests are too large for half of the memory, but can be divided by the host.
    let job = Job {
        concurrent_requests: OPEN,
        ..Job::usual(&tenant, &subject)
    };
    let jobs = std::slice::from_ref(&job);
    let (mut failed, mut gap, mut halvings) = (Vec::new(), 0.0_f64, 0);
    while halvings < HALVINGS && !ran_out_of_memory(&fleet.metrics()?) {
        let (served, halved) = tokio::join!(fleet.serve(jobs, SPAN), halve(&fleet));
        halved?;
        halvings += 1;
        match served {
            Ok(served) => gap = served.iter().map(|served| served.longest_gap).fold(gap, f64::max),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    for _ in 0..ROUNDS {
        failed.extend(fleet.crowd(jobs, IMAGES, JOB_TIMEOUT).await);
    }
    for error in &failed {
        println!("    {error}");
    }
    println!("memory of lanes halved {halvings} times under load: longest gap between answers {gap:.1} s");
    report.set("oom_longest_gap_s", gap);
    report_failures(report, &fleet.metrics()?, &failed);
    Ok(())
}

fn ran_out_of_memory(metrics: &Metrics) -> bool {
    metrics
        .value("lane_out_of_memory_total")
        .is_some_and(|runs| runs > 0.0)
}

fn report_failures(report: &mut Report, metrics: &Metrics, failed: &[String]) {
    let (retried, quarantined) = (
        metrics.value("lane_out_of_memory_total"),
        metrics.value("lane_quarantines_total"),
    );
    println!(
        "    {} engine batches retried with fewer samples, {} jobs failed, {} models quarantined\n",
        shown(retried),
        failed.len(),
        shown(quarantined)
    );
    report.set("oom_retried", retried);
    report.set("oom_quarantined", quarantined);
    report.set("oom_failed", failed.len());
}

/// Range of a lane's data segment during sampling.
#[derive(Debug, Clone, Copy)]
struct DataSegment {
    process: u32,
    smallest: u64,
    largest: u64,
}

impl DataSegment {
    /// Limits the process to the middle between smallest and largest size: half of the memory that engine
    /// batches used.
    fn halve(self) -> Result<()> {
        let limit = u64::midpoint(self.smallest, self.largest);
        let error = [
            format!("--pid={}", self.process),
            format!("--data={limit}:{limit}"),
        ];
        let output = Command::new("prlimit")
            .args(error)
            .output()
            .context("cannot start prlimit (util-linux)")?;
        if !output.status.success() {
            bail!("prlimit: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

/// Halves the limit of lanes after their usage was measured.
async fn halve(fleet: &Fleet) -> Result<()> {
    sleep(SPAN / 3).await;
    let seen = extents(fleet).await;
    // Idle lanes have not shown the memory of an engine batch.
    let worked = seen.into_iter().filter(|extent| extent.largest > extent.smallest);
    worked.into_iter().try_for_each(DataSegment::halve)
}

/// Samples the lanes for a third of the span.
async fn extents(fleet: &Fleet) -> Vec<DataSegment> {
    let every = Duration::from_millis(5);
    let mut extents: Vec<DataSegment> = fleet
        .lanes()
        .into_iter()
        .map(|process| DataSegment {
            process,
            smallest: u64::MAX,
            largest: 0,
        })
        .collect();
    for _ in 0..(SPAN / 3).as_millis() / every.as_millis() {
        // `RLIMIT_DATA` limits this field. Removes ended processes.
        extents.retain_mut(|extent| match proc_status::bytes(extent.process, "VmData") {
            Some(data) => {
                extent.smallest = extent.smallest.min(data);
                extent.largest = extent.largest.max(data);
                true
            }
            None => false,
        });
        sleep(every).await;
    }
    extents
}
