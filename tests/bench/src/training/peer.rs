//! PyTorch's training step, in a process that runs until the suffix is measured.

use super::THREADS;
use crate::dialogue::Dialogue;
use crate::run::{source, text};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) struct Peer {
    dialogue: Dialogue,
    ready: Ready,
}

#[derive(Deserialize)]
struct Ready {
    dims: Vec<usize>,
    layout: String,
}

impl Peer {
    /// Starts PyTorch with the suffix called `suffix`, which is written to `file`.
    pub(super) fn start(python: &Path, suffix: &str, batch: usize, file: &Path) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/training_step.py");
        let mut command = Command::new(python);
        command
            .arg(text(&script)?)
            .args(["--suffix", suffix, "--batch", &batch.to_string()])
            .args(["--threads", &THREADS.to_string(), "--onnx", text(file)?]);
        let mut dialogue = Dialogue::start(&mut command)?;
        let ready = dialogue.answer()?;
        Ok(Self { dialogue, ready })
    }

    /// Dimensions of a batch.
    pub(super) fn dims(&self) -> &[usize] {
        &self.ready.dims
    }

    /// Memory layout of PyTorch's convolutions.
    pub(super) fn layout(&self) -> &str {
        self.ready.layout.trim_start_matches("torch.")
    }

    pub(super) fn times(&mut self, steps: usize) -> Result<Vec<f64>> {
        self.ask("times", steps)
    }

    /// Losses of the first steps, starting from the weights in the file.
    pub(super) fn losses(&mut self, steps: usize) -> Result<Vec<f64>> {
        self.ask("losses", steps)
    }

    /// Returns the MB for a step, using the rule in [`super::memory`].
    pub(super) fn memory(&mut self) -> Result<f64> {
        let all: Vec<f64> = self.ask("memory", 5)?;
        all.first().copied().context("the peer measured no memory")
    }

    fn ask(&mut self, what: &str, steps: usize) -> Result<Vec<f64>> {
        self.dialogue.ask(format_args!("{what} {steps}"))
    }
}

/// Returns the interpreter named by `FROSTLINE_TORCH_PYTHON`, or of an environment with PyTorch. The first
/// call creates the environment.
pub(crate) fn torch(extras: &[&str]) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("FROSTLINE_TORCH_PYTHON") {
        return Ok(named.into());
    }
    let script = source("tests/bench/peers/setup_torch.py");
    let output = Command::new("python3")
        .arg(script)
        .args(extras)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("cannot install PyTorch; see the output above");
    }
    let printed = String::from_utf8(output.stdout)?;
    printed
        .lines()
        .last()
        .map(PathBuf::from)
        .context("setup_torch.py printed no path")
}
