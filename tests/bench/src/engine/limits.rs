//! The memory that lanes may take is halved while a tenant works: runs have to become smaller, and nobody may notice.

use super::kills::BUDGET;
use crate::fleet::load::Job;
use crate::fleet::{Fleet, Metrics, Setting};
use crate::report::{Report, shown};
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;

/// Memory that grows with rows.
const NETWORK: &str = "densenet121";

/// What is watched before, and what is asked for after.
const SPAN: Duration = Duration::from_secs(6);
const IMAGES: usize = 64;

/// Jobs that follow each other then: a model in quarantine would fail the later ones.
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let fleet = Fleet::start(&Setting::of(BUDGET), &report.photos()).await?;
    let (subject, tenant) = (fleet.offer(NETWORK)?, fleet.tenant("halved", 1).await?);
    // Batches that the host may divide and that are too large for half of the memory.
    let job = Job::usual(&tenant, &subject);
    let (served, extents) = tokio::join!(fleet.serve(std::slice::from_ref(&job), SPAN), extents(&fleet));
    served?;
    for extent in extents? {
        extent.halve()?;
    }
    let mut failed = Vec::new();
    for _ in 0..ROUNDS {
        failed.extend(fleet.crowd(std::slice::from_ref(&job), IMAGES, PATIENCE).await);
    }
    for words in &failed {
        println!("    {words}");
    }
    tell(report, &fleet.metrics()?, &failed);
    Ok(())
}

fn tell(report: &mut Report, metrics: &Metrics, failed: &[String]) {
    let (retried, quarantined) = (
        metrics.value("lane_out_of_memory_total"),
        metrics.value("lane_quarantines_total"),
    );
    println!(
        "memory of lanes halved under load: {} runs repeated with fewer rows, {} of {ROUNDS} jobs failed, {} models in quarantine\n",
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
        let words = [
            format!("--pid={}", self.process),
            format!("--data={limit}:{limit}"),
        ];
        let output = Command::new("prlimit")
            .args(words)
            .output()
            .context("prlimit, of util-linux, cannot be started")?;
        if !output.status.success() {
            bail!("prlimit: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

/// Looks at the lanes until the span is over; its first third, in which sessions open, does not count.
async fn extents(fleet: &Fleet) -> Result<Vec<Extent>> {
    let every = Duration::from_millis(5);
    sleep(SPAN / 3).await;
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
        for extent in &mut extents {
            let data = data(extent.process).context("a lane's process ended meanwhile")?;
            extent.least = extent.least.min(data);
            extent.most = extent.most.max(data);
        }
        sleep(every).await;
    }
    Ok(extents)
}

/// Address space of a process that `RLIMIT_DATA` counts.
fn data(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
