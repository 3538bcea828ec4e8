//! PyTorch on the same device.

use super::Extent;
use crate::dialogue::Dialogue;
use crate::report::median;
use crate::run::{last_object, number, source};
use crate::training::torch;
use anyhow::{Context, Result};
use frostline_engine::Device;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn command(extent: &Extent, what: &str, network: &str) -> Result<Command> {
    let device = match extent.device {
        Device::Cpu => "cpu".to_owned(),
        gpu @ Device::Cuda(_) => gpu.to_string(),
    };
    let mut command = Command::new(torch(&["--vision"])?);
    command
        .arg(source("tests/bench/peers/gpu.py"))
        .args([what, "--network", network, "--device", &device]);
    Ok(command)
}

/// A process that runs the layers up to the freeze cut, on pixels in device memory.
pub(super) struct Forward(Dialogue);

impl Forward {
    pub(super) fn start(network: &str, extent: &Extent) -> Result<Self> {
        let mut command = command(extent, "forward", network)?;
        let mut dialogue = Dialogue::start(command.args(["--rows", &extent.rows.to_string()]))?;
        dialogue.answer::<Value>()?;
        Ok(Self(dialogue))
    }

    /// Returns the images per second by memory layout.
    pub(super) fn eager(&mut self, precision: &str, batch: usize) -> Result<BTreeMap<String, f64>> {
        self.0.ask(format_args!("{precision} {batch}"))
    }

    /// Returns the images per second of `torch.compile` in the layout `channels_last`.
    pub(super) fn compiled(&mut self, precision: &str, batch: usize, backend: &str) -> Result<f64> {
        let rates: BTreeMap<String, f64> = self.0.ask(format_args!("{precision} {batch} {backend}"))?;
        let rate = rates.into_values().next();
        rate.context("PyTorch returned no rate")
    }
}

/// Returns the images per second of a job on the photos in `data`, in the median of the epochs after the first.
pub(super) fn job(
    extent: &Extent,
    network: &str,
    data: &Path,
    precision: &str,
    batch: &str,
    epochs: usize,
) -> Result<f64> {
    let mut command = command(extent, "job", network)?;
    command
        .arg("--data")
        .arg(data)
        .args(["--precision", precision, "--batch", batch])
        .args(["--epochs", &epochs.to_string()]);
    let answer = last_object(&mut command)?;
    let seconds = answer.get("seconds").and_then(Value::as_array);
    let seconds = seconds.context("PyTorch returned no durations")?.iter();
    let later: Vec<f64> = seconds.skip(1).filter_map(Value::as_f64).collect();
    Ok(number(&answer, "photos")? / median(&later))
}
