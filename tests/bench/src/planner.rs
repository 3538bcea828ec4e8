//! Runs the command `frostline plan` over the two tiers.

use crate::run::{binary, last_object, text};
use crate::trainer::Trainer;
use anyhow::{Context, Result};
use frostline_trainer::{FetchLimits, Policy, Simulation};
use frostline_wire::{Encoding, Split};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

/// Output of `frostline plan --json`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Plan {
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    request_samples: usize,
    window: usize,
    batches_ahead: usize,
    candidates: Vec<Candidate>,
    /// Seconds for choosing the plan, without measuring.
    pub(crate) choosing_seconds: f64,
    /// Complete output line.
    #[serde(skip)]
    printed: String,
    /// Wall time of the command.
    #[serde(skip)]
    pub(crate) wall_seconds: f64,
}

/// A split with predictions. Contains only fields used in benchmarks.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    iteration_seconds: f64,
    pub(crate) bottleneck: String,
    pub(crate) bytes_per_sample: f64,
}

/// Epochs of the job to plan. Only steady steps are measured, so there are enough epochs that the start and
/// the end of the job have little weight.
const EPOCHS: &str = "50";

impl Plan {
    /// Plans with `candidates` at the current link rate.
    pub(crate) fn ask(trainer: &Trainer, candidates: &[Split]) -> Result<Self> {
        let batch = trainer.batch().to_string();
        let url = trainer.host().url();
        let candidates: Vec<String> = candidates.iter().map(Split::to_string).collect();
        let started = Instant::now();
        let mut command = Command::new(binary()?);
        command
            .args(["plan", "--json", "--model", text(trainer.file())?])
            .args(["--freeze", &trainer.network().freeze])
            .args(["--data", trainer.tiers().data(), "--host", &url])
            .args(["--token-file", text(trainer.host().token_file())?])
            .args(["--batch", &batch, "--epochs", EPOCHS])
            .args(["--policy", "auto", "--candidates", &candidates.join(",")])
            .env("XDG_CACHE_HOME", trainer.cache());
        let last = last_object(&mut command)?;
        let printed = last.to_string();
        let plan: Self = serde_json::from_value(last).context("unexpected output of frostline plan")?;
        Ok(Self {
            printed,
            wall_seconds: started.elapsed().as_secs_f64(),
            ..plan
        })
    }

    pub(crate) fn flow(&self) -> FetchLimits {
        FetchLimits {
            request_samples: self.request_samples,
            window: self.window,
            ahead: self.batches_ahead,
        }
    }

    /// Predicted seconds of an iteration by split.
    pub(crate) fn predictions(&self) -> BTreeMap<String, f64> {
        let predicted = |candidate: &Candidate| (candidate.split.to_string(), candidate.iteration_seconds);
        self.candidates.iter().map(predicted).collect()
    }

    /// The split that another policy chooses from the same measurements.
    pub(crate) fn by(&self, policy: &Policy) -> Result<Split> {
        let (summary, _) = Simulation::parse(&self.printed)?.plan(policy)?;
        Ok(summary.split)
    }

    /// The candidate for `split`.
    pub(crate) fn candidate(&self, split: &Split) -> Result<&Candidate> {
        self.candidates
            .iter()
            .find(|candidate| candidate.split == *split)
            .with_context(|| format!("the plan does not contain candidate '{split}'"))
    }
}
