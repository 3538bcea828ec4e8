//! The memory limit of lanes is halved under load: engine batches must shrink, and no job may fail.

use super::kills::BUDGET;
use crate::fleet::load::Job;
use crate::fleet::{Fleet, Metrics, Setting};
use crate::proc_status;
use crate::report::{Report, shown};
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;

/// Its batches pay on a processor, so its runs have many rows, and memory that grows with them. Of one that runs row by row half is too
/// little for anything.
const NETWORK: &str = "alexnet";

/// How long the tenant works: before the lanes are looked at, while they are, and once they have half.
const SPAN: Duration = Duration::from_secs(9);

/// Halvings at most: what was largest when the lanes were looked at may have been a trial that the host does not repeat.
const HALVINGS: usize = 6;

/// Concurrent requests: work for all lanes.
const OPEN: usize = 8;
const IMAGES: usize = 64;

/// Jobs that follow each other then: a model in quarantine would fail the later ones.
const ROUNDS: usize = 3;
const JOB_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let fleet = Fleet::start(&Setting::with_budget(BUDGET), &report.photos()).await?;
    let (subject, tenant) = (fleet.offer(NETWORK)?, fleet.tenant("halved", 1).await?);
    // Batches that the host may divide and that are too large for half of the memory.
    let job = Job {
        open: OPEN,
        ..Job::usual(&tenant, &subject)
    };
    let jobs = std::slice::from_ref(&job);
    let (mut failed, mut gap, mut halvings) = (Vec::new(), 0.0_f64, 0);
    while halvings < HALVINGS && !lacked(&fleet.metrics()?) {
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

fn lacked(metrics: &Metrics) -> bool {
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

/// What a lane's process was seen to have of address space, in bytes.
#[derive(Debug, Clone, Copy)]
struct Extent {
    process: u32,
    least: u64,
    most: u64,
}

impl Extent {
    /// Lets the process have half of what runs took of it beyond what it has without one.
    fn halve(self) -> Result<()> {
        let limit = u64::midpoint(self.least, self.most);
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
    // One that did nothing shows nothing of what it needs.
    let worked = seen.into_iter().filter(|extent| extent.most > extent.least);
    worked.into_iter().try_for_each(Extent::halve)
}

/// Samples the lanes for a third of the span.
async fn extents(fleet: &Fleet) -> Vec<Extent> {
    let every = Duration::from_millis(5);
    let mut extents: Vec<Extent> = fleet
        .lanes()
        .into_iter()
        .map(|process| Extent {
            process,
            least: u64::MAX,
            most: 0,
        })
        .collect();
    for _ in 0..(SPAN / 3).as_millis() / every.as_millis() {
        // The field that `RLIMIT_DATA` limits. Processes that have ended are dropped.
        extents.retain_mut(|extent| match proc_status::bytes(extent.process, "VmData") {
            Some(data) => {
                extent.least = extent.least.min(data);
                extent.most = extent.most.max(data);
                true
            }
            None => false,
        });
        sleep(every).await;
    }
    extents
}
