//! Measures a device: rates of frozen layers by precision and batch size without decoding, memory use
//! compared with the budget, and a complete job. Rates are compared with PyTorch. On machines without a GPU,
//! the benchmark can be tested on the CPU.

mod job;
mod loops;
mod memory;
mod torch;

use crate::report::Report;
use anyhow::Result;
use frostline_engine::Device;
use std::time::{Duration, Instant};

/// Parts that can run separately.
pub(crate) const PARTS: [&str; 3] = ["loops", "memory", "job"];

/// Images per turn, already decoded.
const ROWS: usize = 2048;
const QUICK_ROWS: usize = 32;

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
            false => &["resnet50", "vit_b_16", "resnet18"],
        };
        Self {
            device,
            networks: match named {
                [] => networks.iter().map(|&name| name.to_owned()).collect(),
                named => named.to_vec(),
            },
            batches: if quick {
                &[4, 16]
            } else {
                &[16, 32, 64, 128, 256, 512]
            },
            rows: if quick { QUICK_ROWS } else { ROWS },
            deadline: Instant::now() + Duration::from_secs(report.seconds_or(3600)),
        }
    }

    /// Returns true if there is time for measuring `what`. Otherwise prints that it is skipped.
    fn has_time(&self, what: &str) -> bool {
        let left = Instant::now() < self.deadline;
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if report.has("loops") {
            loops::run(report, &extent).await?;
        }
        if report.has("memory") {
            memory::run(report, &extent).await?;
        }
        anyhow::Ok(())
    })?;
    if report.has("job") && extent.has_time("job") {
        job::run(report, &extent)?;
    }
    Ok(())
}
