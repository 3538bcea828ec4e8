//! Measures the additional memory for a second lane with the same stage. Lanes map weights from a shared
//! file.

use super::{BUDGET, span};
use crate::fleet::load::Job;
use crate::fleet::{Fleet, MIB, Setting};
use crate::proc_status::proportional;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// The network with the most weights, and a smaller network for quick runs.
const FULL: &str = "vgg11";
const QUICK: &str = "alexnet";

/// Enough idle time for lanes to release memory after an engine batch.
const REST: Duration = Duration::from_millis(2500);

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let name = if report.quick() { QUICK } else { FULL };
    let (one, two) = (held(report, name, 1).await?, held(report, name, 2).await?);
    println!(
        "proportional memory with {name}: {:.0} MiB for one lane, {:.0} MiB for two lanes",
        one / MIB,
        two / MIB
    );
    report.set("weights_shared_ratio", two / one);
    Ok(())
}

/// Measures the proportional memory of `lanes` lanes with a session for the network.
async fn held(report: &Report, name: &str, lanes: usize) -> Result<f64> {
    let setting = Setting {
        lanes,
        ..Setting::with_budget(BUDGET)
    };
    let fleet = Fleet::start(&setting, &report.photos()).await?;
    let subject = fleet.offer(name)?;
    let tenant = fleet.tenant("weights", 1).await?;
    // More requests than one lane can execute, so that all lanes open the stage.
    let job = Job {
        concurrent_requests: 4 * lanes,
        ..Job::usual(&tenant, &subject)
    };
    fleet.serve(&[job], span(report, 20)).await?;
    tokio::time::sleep(REST).await;
    let processes = fleet.lanes();
    ensure!(
        processes.len() == lanes,
        "expected {lanes} lane processes, found {}",
        processes.len()
    );
    let held = processes.into_iter().map(|lane| {
        let bytes = proportional(lane).context("failed to read the lane's proportional memory")?;
        println!("    {lanes} lanes, {:.0} MiB per lane", bytes as f64 / MIB);
        Ok(bytes as f64)
    });
    held.sum()
}
