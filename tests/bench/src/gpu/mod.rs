//! Measures a device: a complete job at the planned and at fixed splits, rates of frozen layers by precision
//! and batch size without decoding, and memory use compared with the ledger. Rates are compared with PyTorch.
//! On machines without a GPU, the benchmark can be tested on the CPU.

mod job;
mod loops;
mod memory;
mod torch;

use crate::report::Report;
use anyhow::Result;
use frostline_engine::Device;
use std::time::{Duration, Instant};

/// Parts that can run separately.
pub(crate) const PARTS: [&str; 3] = ["job", "loops", "memory"];

/// Images per turn, already decoded.
const ROWS: usize = 2048;
const QUICK_ROWS: usize = 16;

/// Scope of the measurements.
struct Extent {
    device: Device,
    networks: Vec<String>,
    batches: &'static [usize],
    rows: usize,
    deadline: Instant,
}

impl Extent {
    fn new(report: &Report) -> Self {
        let (device, (named, _)) = (report.device(), report.named());
        let quick = report.quick();
        let networks: &[&str] = match quick {
            true => &["resnet18"],
            false => &["resnet50", "vit_b_16"],
        };
        Self {
            device,
            networks: match named {
                [] => networks.iter().map(|&name| name.to_owned()).collect(),
                named => named.to_vec(),
            },
            batches: if quick { &[4, 16] } else { &[32, 128, 512] },
            rows: if quick { QUICK_ROWS } else { ROWS },
            deadline: Instant::now() + Duration::from_secs(report.seconds_or(3600)),
        }
    }

    /// Returns true if there is time for measuring `what`. Otherwise prints that it is skipped.
    fn has_time(&self, what: &str) -> bool {
        self.has_seconds(what, 0)
    }

    /// Like [`Extent::has_time`], for a measurement that needs this many seconds.
    fn has_seconds(&self, what: &str, seconds: u64) -> bool {
        let left = Instant::now() + Duration::from_secs(seconds) < self.deadline;
        if !left {
            println!("{what} skipped: out of time");
        }
        left
    }
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let extent = Extent::new(report);
    let machine = frostline_profile::machine(match extent.device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(index),
    });
    println!("{} on {machine}\n", extent.device);
    report.set("device", extent.device.to_string());
    report.set("machine", machine);
    if report.has("job") && extent.has_time("job") {
        job::run(report, &extent)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if report.has("loops") {
            loops::run(report, &extent).await?;
        }
        if report.has("memory") {
            memory::run(report, &extent).await?;
        }
        Ok(())
    })
}
