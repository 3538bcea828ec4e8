//! Measures an epoch of a complete job from photos to training steps, with host and trainer on this machine,
//! and in PyTorch.

use super::Extent;
use super::torch::images_per_second;
use crate::networks::{Grid, exported};
use crate::report::Report;
use crate::run::{binary, last_number, text, train};
use anyhow::Result;
use frostline_e2e::HostProcess;
use frostline_engine::Device;
use std::path::Path;

/// Images per step.
const BATCH: &str = "64";

/// The first epoch is a warm-up for opening sessions and correcting plans.
const EPOCHS: &str = "2";

/// Part of the photos for validation, which the host also computes in each epoch.
const VALIDATION: &str = "0.05";

/// Minimum number of photos. The photos in the folder are repeated to reach it.
const PHOTOS: usize = 2048;
const QUICK_PHOTOS: usize = 40;

pub(super) fn run(report: &mut Report, extent: &Extent) -> Result<()> {
    let Some(network) = extent.networks.first() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("photos");
    let photos = repeat(
        &report.photos().part("train"),
        &data,
        if report.quick() { QUICK_PHOTOS } else { PHOTOS },
    )?;
    println!("\n{network} on {photos} photos, steps of {BATCH}");
    let device = extent.device.to_string();
    let precisions: &[&str] = match extent.device {
        Device::Cpu => &["full"],
        Device::Cuda(_) => &["full", "tf32"],
    };
    for precision in precisions {
        if !extent.has_time("job") {
            return Ok(());
        }
        let host = HostProcess::start(
            &binary()?,
            &folder.path().join(format!("host-{precision}")),
            text(&data)?,
            &["--device", &device],
        )?;
        let rate = photos as f64 / epoch(network, &host, &data, &device, precision)?;
        println!("{precision:<5} {rate:>10.0} images/s");
        report.set(&format!("job_{precision}_images_per_second"), rate);
        let torch = torch(extent, network, &data, precision)?;
        println!("{precision:<5} {torch:>10.0} images/s by PyTorch");
        report.set(&format!("job_{precision}_pytorch_images_per_second"), torch);
        report.set(&format!("job_{precision}_ratio_vs_pytorch"), rate / torch);
    }
    Ok(())
}

/// Returns the seconds of the last epoch.
fn epoch(network: &str, host: &HostProcess, data: &Path, device: &str, precision: &str) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let freeze = Grid::read()?.network(network)?.freeze.clone();
    let (file, url) = (exported(network)?, host.url());
    let mut flags = vec!["--host", &url, "--token-file", text(host.token_file())?];
    flags.extend(["--split", &freeze, "--batch", BATCH, "--epochs", EPOCHS]);
    flags.extend([
        "--precision",
        precision,
        "--device",
        device,
        "--feature-cache",
        "off",
    ]);
    // With random weights, features are so large that training diverges at common learning rates.
    flags.extend(["--lr", "1e-9", "--validation", VALIDATION]);
    let events = train(&file, data, &freeze, folder.path(), &flags)?;
    last_number(&events, "epoch", "seconds")
}

fn torch(extent: &Extent, network: &str, data: &Path, precision: &str) -> Result<f64> {
    let precision = if precision == "full" { "f32" } else { precision };
    images_per_second(
        extent,
        &[
            "job",
            "--network",
            network,
            "--precision",
            precision,
            "--batch",
            BATCH,
            "--epochs",
            EPOCHS,
            "--data",
            text(data)?,
        ],
    )
}

/// Copies the photos in `from` to `to`, repeatedly until there are at least `count`. Returns the number of
/// copies.
fn repeat(from: &Path, to: &Path, count: usize) -> Result<usize> {
    let mut linked = 0;
    for round in 0.. {
        for class in std::fs::read_dir(from)? {
            let class = class?;
            let folder = to.join(class.file_name());
            std::fs::create_dir_all(&folder)?;
            for photo in std::fs::read_dir(class.path())? {
                let photo = photo?;
                let name = photo.file_name();
                std::fs::copy(
                    photo.path(),
                    folder.join(format!("{round}-{}", name.to_string_lossy())),
                )?;
                linked += 1;
            }
        }
        if linked >= count || linked == 0 {
            break;
        }
    }
    Ok(linked)
}
