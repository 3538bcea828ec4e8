//! Compares the GPU memory of a lane's process with the budget.

use super::Extent;
use super::loops::{Prefix, Way, one_lane};
use crate::report::Report;
use crate::run::binary;
use anyhow::Result;
use frostline_batching::{Budget, Memory};
use frostline_engine::{ChildLanes, Device, LanesConfig, LanesPlace, free_device_memory};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

const BUDGET: u64 = 4 << 30;

/// Timeout per batch size.
const LONGEST: Duration = Duration::from_secs(15);

/// Interval at which the driver is asked for the free memory.
const LOOK: Duration = Duration::from_millis(2);

pub(super) async fn run(report: &mut Report, extent: &Extent) -> Result<()> {
    if extent.device == Device::Cpu {
        println!("\nmemory skipped: a CPU has no separate memory");
        return Ok(());
    }
    println!("\nlane process with a budget of {} MB on the GPU", BUDGET >> 20);
    for network in &extent.networks {
        if !extent.has_time("memory") {
            break;
        }
        let prefix = Prefix::read(network, Way::F32)?;
        let config = LanesConfig {
            place: LanesPlace::Child(ChildLanes::new(binary()?, ["lanes"])),
            ..one_lane(extent)
        };
        let memory = Memory::new(Budget {
            bytes: BUDGET,
            ..Budget::default()
        });
        let before = free_device_memory(extent.device).unwrap_or_default();
        let lanes = prefix.start(config.within(memory))?;
        let watch = Watch::start(extent.device);
        for &batch in extent.batches {
            match timeout(LONGEST, prefix.rate(&lanes, batch, batch)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => println!("{network} at batch size {batch}: {error:#}"),
                Err(_) => println!("{network} at batch size {batch}: timeout after {LONGEST:?}"),
            }
            let stats = lanes.stats();
            let taken = before.saturating_sub(watch.least());
            println!(
                "{network} {batch:>4}: driver {} MB, ledger {} MB, {} mispredicted, {} out of memory",
                taken >> 20,
                stats.memory_reserved >> 20,
                stats.memory_misses,
                stats.out_of_memory
            );
            report.set(&format!("{network}_b{batch}_driver_bytes"), taken);
            report.set(&format!("{network}_b{batch}_ledger_bytes"), stats.memory_reserved);
        }
        let peak = before.saturating_sub(watch.least());
        report.set(
            &format!("{network}_memory_over_budget"),
            peak as f64 / BUDGET as f64,
        );
    }
    Ok(())
}

/// A thread that records the smallest amount of free memory.
struct Watch {
    least: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Watch {
    fn start(device: Device) -> Self {
        let (least, ended) = (
            Arc::new(AtomicU64::new(u64::MAX)),
            Arc::new(AtomicBool::new(false)),
        );
        let (seen, stop) = (Arc::clone(&least), Arc::clone(&ended));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Some(free) = free_device_memory(device) {
                    seen.fetch_min(free, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK);
            }
        });
        Self { least, ended }
    }

    fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
