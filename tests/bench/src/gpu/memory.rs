//! Compares the memory of lane processes with the ledger while four tenants run small jobs, and checks that it
//! is returned.

use super::Extent;
use super::loops::{Prefix, Variant, one_lane};
use crate::proc_status;
use crate::report::Report;
use crate::run::binary;
use anyhow::{Context, Result};
use frostline_batching::{Budget, Memory};
use frostline_engine::{ChildLanes, Device, Lanes, LanesConfig, LanesPlace, free_device_memory};
use futures::future::try_join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::sleep;

const BUDGET: u64 = 8 << 30;

const TENANTS: usize = 4;

/// Jobs of all tenants, and rows of each.
const JOBS: usize = 200;
const QUICK_JOBS: usize = 16;
const ROWS: usize = 64;
const QUICK_ROWS: usize = 4;

/// Interval at which memory is sampled.
const LOOK: Duration = Duration::from_millis(2);

/// Time after which an idle lane has released the memory of the last batch, and the driver that of an ended
/// process.
const SETTLED: Duration = Duration::from_secs(3);

/// Largest memory in a phase, in bytes.
#[derive(Default)]
struct Peaks {
    used: AtomicU64,
    ledger: AtomicU64,
}

pub(super) async fn run(report: &mut Report, extent: &Extent) -> Result<()> {
    let (jobs, rows) = match report.quick() {
        true => (QUICK_JOBS, QUICK_ROWS),
        false => (JOBS, ROWS),
    };
    let memory = Memory::new(Budget {
        bytes: BUDGET,
        ..Budget::default()
    });
    let config = LanesConfig {
        place: LanesPlace::Child(ChildLanes::new(binary()?, ["lanes"])),
        ..one_lane(extent.device)
    };
    let config = match extent.device {
        Device::Cpu => LanesConfig { memory, ..config },
        Device::Cuda(_) => config.within(memory),
    };
    let networks = extent.networks.iter();
    let prefixes: Vec<Prefix> = networks
        .map(|network| Prefix::read(network, &Variant::F32))
        .collect::<Result<_>>()?;
    let before = free_device_memory(extent.device);
    let lanes = Arc::new(Prefix::start_all(&prefixes, config)?);
    println!(
        "\n{jobs} jobs of {TENANTS} tenants, {rows} rows each, budget {} MB",
        BUDGET >> 20
    );
    let used = |lanes: &Lanes| used(extent.device, before, lanes);
    record(report, "start", used(&lanes), lanes.stats().memory_reserved);
    let (peaks, ended) = (Peaks::default(), AtomicBool::new(false));
    let work = async {
        let tenants = (0..TENANTS).map(|tenant| {
            let (lanes, prefixes) = (&lanes, &prefixes);
            async move {
                let tenant_name = format!("tenant{tenant}");
                for job in 0..jobs.div_ceil(TENANTS) {
                    let prefix = prefixes.get((tenant + job) % prefixes.len());
                    let prefix = prefix.context("at least one network is required")?;
                    prefix.extract(lanes, &tenant_name, rows).await?;
                }
                anyhow::Ok(())
            }
        });
        let done = try_join_all(tenants).await;
        ended.store(true, Ordering::Relaxed);
        done
    };
    let watch = async {
        while !ended.load(Ordering::Relaxed) {
            peaks
                .used
                .fetch_max(used(&lanes).unwrap_or_default(), Ordering::Relaxed);
            peaks
                .ledger
                .fetch_max(lanes.stats().memory_reserved, Ordering::Relaxed);
            sleep(LOOK).await;
        }
    };
    let (done, ()) = tokio::join!(work, watch);
    let peak = peaks.used.into_inner();
    record(report, "peak", Some(peak), peaks.ledger.into_inner());
    report.set("memory_over_budget", peak as f64 / BUDGET as f64);
    done?;
    sleep(SETTLED).await;
    let stats = lanes.stats();
    record(report, "idle", used(&lanes), stats.memory_reserved);
    report.set("memory_jobs", stats.jobs_done);
    report.set("memory_mispredicted", stats.memory_misses);
    report.set("memory_out_of_memory", stats.out_of_memory);
    drop(lanes);
    sleep(SETTLED).await;
    let after = free_device_memory(extent.device);
    let lost = before
        .zip(after)
        .map(|(before, after)| before.saturating_sub(after));
    record(report, "end", Some(lost.unwrap_or_default()), 0);
    Ok(())
}

/// Bytes used by the lanes: on a GPU since the start of the benchmark, otherwise the anonymous memory of the
/// processes. `None` if the driver does not report it.
fn used(device: Device, before: Option<u64>, lanes: &Lanes) -> Option<u64> {
    match device {
        Device::Cpu => {
            let processes = lanes.stats().processes.into_iter();
            Some(
                processes
                    .filter_map(|process| proc_status::bytes(process, "RssAnon"))
                    .sum(),
            )
        }
        Device::Cuda(_) => Some(before?.saturating_sub(free_device_memory(device)?)),
    }
}

fn record(report: &mut Report, phase: &str, used: Option<u64>, ledger: u64) {
    let shown = used.map_or("unknown".to_owned(), |used| (used >> 20).to_string());
    println!("{phase:<6} driver {shown:>6} MB, ledger {:>6} MB", ledger >> 20);
    report.set(&format!("memory_{phase}_used_bytes"), used);
    report.set(&format!("memory_{phase}_ledger_bytes"), ledger);
}
