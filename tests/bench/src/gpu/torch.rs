//! PyTorch on the same device.

use super::Extent;
use super::loops::Way;
use crate::run::{json_lines, source, text};
use crate::training::torch;
use anyhow::{Context, Result};
use frostline_engine::Device;
use serde_json::Value;
use std::process::Command;

/// What `peers/gpu.py` prints.
pub(super) fn ask(extent: &Extent, arguments: &[&str]) -> Result<Value> {
    let device = match extent.device {
        Device::Cpu => "cpu".to_owned(),
        gpu @ Device::Cuda(_) => gpu.to_string(),
    };
    let mut command = Command::new(torch(&["--vision"])?);
    command
        .arg(text(&source("tests/bench/peers/gpu.py"))?)
        .args(arguments)
        .args(["--device", &device]);
    let lines = json_lines(&mut command)?;
    lines.into_iter().next_back().context("gpu.py printed nothing")
}

/// Images a second of the layers up to the freeze cut on pixels that are on the device.
pub(super) fn forward(network: &str, way: Way, batch: usize, extent: &Extent) -> Result<f64> {
    let [batch, rows] = [batch, extent.rows].map(|count| count.to_string());
    let found = ask(
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
    )?;
    let rate = found.get("images_per_second").and_then(Value::as_f64);
    rate.context("gpu.py printed no images_per_second")
}
