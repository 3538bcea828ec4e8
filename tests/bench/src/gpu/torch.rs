//! PyTorch on the same device.

use super::Extent;
use super::loops::Way;
use crate::run::{last_object, number, source, text};
use crate::training::torch;
use anyhow::Result;
use frostline_engine::Device;
use std::process::Command;

/// Runs `peers/gpu.py` and returns the images per second.
pub(super) fn images_per_second(extent: &Extent, arguments: &[&str]) -> Result<f64> {
    let device = match extent.device {
        Device::Cpu => "cpu".to_owned(),
        gpu @ Device::Cuda(_) => gpu.to_string(),
    };
    let mut command = Command::new(torch(&["--vision"])?);
    command
        .arg(text(&source("tests/bench/peers/gpu.py"))?)
        .args(arguments)
        .args(["--device", &device]);
    number(&last_object(&mut command)?, "images_per_second")
}

/// Images per second through the layers up to the freeze cut, with pixels already on the device.
pub(super) fn forward(network: &str, way: Way, batch: usize, extent: &Extent) -> Result<f64> {
    let [batch, rows] = [batch, extent.rows].map(|count| count.to_string());
    images_per_second(
        extent,
        &[
            "forward",
            "--network",
            network,
            "--precision",
            way.name(),
            "--batch",
            &batch,
            "--rows",
            &rows,
        ],
    )
}
