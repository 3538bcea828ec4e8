//! Memory of a second lane with the same stage: weights that lanes map from one file are in memory once.

use super::{BUDGET, span};
use crate::fleet::load::Job;
use crate::fleet::{Fleet, MIB, Setting};
use crate::proc_status::proportional;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// The network with the most weights, and a smaller one for quick runs.
const FULL: &str = "vgg11";
const QUICK: &str = "alexnet";

/// After this idle time a lane has released the memory of its last engine batch.
const REST: Duration = Duration::from_millis(2500);

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let name = if report.quick() { QUICK } else { FULL };
    let (one, two) = (held(report, name, 1).await?, held(report, name, 2).await?);
    println!(
        "lanes with {name}, shared pages divided among them: {:.0} MiB one, {:.0} MiB two",
        one / MIB,
        two / MIB
    );
    report.set("weights_shared_ratio", two / one);
    Ok(())
}

/// Memory of this many lanes, each with a session of the network.
async fn held(report: &Report, name: &str, lanes: usize) -> Result<f64> {
    let setting = Setting {
        lanes,
        ..Setting::with_budget(BUDGET)
    };
    let fleet = Fleet::start(&setting, &report.photos()).await?;
    let subject = fleet.offer(name)?;
    let tenant = fleet.tenant("weights", 1).await?;
    // More than one lane can do, so that the stage is opened on all.
    let job = Job {
        open: 4 * lanes,
        ..Job::usual(&tenant, &subject)
    };
    fleet.serve(&[job], span(report, 20)).await?;
    tokio::time::sleep(REST).await;
    let processes = fleet.lanes();
    ensure!(
        processes.len() == lanes,
        "{} processes of lanes, not {lanes}",
        processes.len()
    );
    let held = processes.into_iter().map(|lane| {
        let bytes = proportional(lane).context("cannot read the proportional memory of a process")?;
        println!("    {lanes} lanes, {:.0} MiB per lane", bytes as f64 / MIB);
        Ok(bytes as f64)
    });
    held.sum()
}
