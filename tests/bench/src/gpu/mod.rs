//! A host's device: rates of frozen layers without decoding by precision and batch, against PyTorch; memory against its budget; a whole job against PyTorch. Without a GPU the same runs on the CPU, which tests the benchmark.

mod f16;
mod job;
mod loops;
mod memory;
mod torch;

use crate::report::Report;
use anyhow::Result;
use frostline_engine::Device;
use std::time::{Duration, Instant};

/// What can be run alone.
pub(crate) const PARTS: [&str; 3] = ["loops", "memory", "job"];

/// Photos without decoding that are run through in each turn.
const ROWS: usize = 2048;
const QUICK_ROWS: usize = 32;

/// How much is measured where.
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

    /// Whether time is left; otherwise says that `what` is left out.
    fn has_time(&self, what: &str) -> bool {
        let left = Instant::now() < self.deadline;
        if !left {
            println!("{what}: not measured, the time is up");
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
