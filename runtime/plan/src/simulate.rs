//! Planning with measurements from a file, without a host or data. The file is the output of `frostline plan
//! --json` or is written by hand, for example from published measurements.

use crate::links::over_links;
use crate::policy::no_match_reason;
use crate::text::suggestion;
use crate::{
    Candidate, CostModel, Explanation, LayersLocation, Modules, Plan, Reuse, Stages, Summary, Work, Workload,
};
use frostline_graph::list_first;
use frostline_job::{FetchLimits, LinkPoint, Objective, Policy, Prices};
use frostline_wire::{Encoding, Split};
use serde::Deserialize;
use std::collections::HashSet;

/// Measurements for a job. The candidates are listed in order of execution, and the freeze cut is the last
/// candidate.
///
/// The file format is described in `docs/planning.md`. Other fields are ignored, so the output of `frostline
/// plan --json` can be used directly.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Simulation {
    /// Link rate in bytes per second.
    pub link_bytes_per_second: f64,
    batch: usize,
    iterations: u64,
    /// Defaults to `iterations`, which means a single epoch.
    epoch_iterations: Option<u64>,
    /// By default, all batches are full.
    epoch_samples: Option<f64>,
    /// Cores that are allocated to the trainer.
    #[serde(default = "one")]
    trainer_cores: f64,
    /// The minimized quantity. It is not part of the file.
    #[serde(skip)]
    pub objective: Objective,
    /// Prices of cores and traffic. They are not part of the file.
    #[serde(skip)]
    pub prices: Option<Prices>,
    reuse: Option<Reuse>,
    #[serde(default)]
    shared_cores: bool,
    /// Defaults to 1, which means that the first batch is extracted completely and then sent.
    #[serde(default = "one")]
    request_share: f64,
    candidates: Vec<CandidateTimes>,
}

/// Seconds and bytes per iteration for a candidate.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct CandidateTimes {
    split: Split,
    #[serde(default)]
    encoding: Encoding,
    host_seconds: f64,
    trainer_seconds: f64,
    step_seconds: Option<f64>,
    bytes: Option<f64>,
    bytes_per_sample: Option<f64>,
    /// Defaults to `host_seconds`, which means a single core.
    host_core_seconds: Option<f64>,
    /// Defaults to `trainer_seconds` on all cores of the trainer. The same applies to the step.
    trainer_core_seconds: Option<f64>,
    step_core_seconds: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// Error in a simulation file or in the choice from it.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The file is not valid JSON or does not have the expected fields.
    #[error("invalid simulation: {0}; use the JSON output of a plan (see runtime/plan/docs/planning.md)")]
    Json(#[from] serde_json::Error),
    /// The value is not in the valid range.
    #[error("{what} is {value}; it must be {must}")]
    InvalidValue {
        /// Name of the value.
        what: String,
        /// The invalid value.
        value: String,
        /// Description of the valid range.
        must: &'static str,
    },
    /// Two candidates have the same split.
    #[error("duplicate split '{0}'")]
    DuplicateSplit(Split),
    /// No candidate fits the policy.
    #[error("no candidate fits the policy '{policy}': {why}")]
    NoCandidate {
        /// The requested policy.
        policy: String,
        /// Similar names and the available candidates.
        why: String,
    },
    /// A requested split is missing in the measurements.
    #[error("the split '{split}' was not measured: {why}")]
    NotMeasured {
        /// The requested split.
        split: Split,
        /// Similar names and the measured splits.
        why: String,
    },
}

impl Simulation {
    /// Parses and validates the text of a simulation file.
    ///
    /// # Errors
    /// Returns [`SimulationError::Json`] if the text cannot be parsed, [`SimulationError::InvalidValue`] if a
    /// value is out of range, and [`SimulationError::DuplicateSplit`] if a split is listed more than once.
    pub fn parse(text: &str) -> Result<Self, SimulationError> {
        let simulation: Self = serde_json::from_str(text)?;
        simulation.check()?;
        Ok(simulation)
    }

    /// Removes all candidates except `splits`.
    ///
    /// # Errors
    /// Returns [`SimulationError::NotMeasured`] if a split was not measured.
    pub fn with_candidates(mut self, splits: &[Split]) -> Result<Self, SimulationError> {
        let missing = splits
            .iter()
            .find(|split| !self.splits().any(|measured| measured == *split));
        if let Some(split) = missing {
            return Err(SimulationError::NotMeasured {
                split: split.clone(),
                why: self.list_splits(split),
            });
        }
        self.candidates
            .retain(|measured| splits.contains(&measured.split));
        Ok(self)
    }

    fn splits(&self) -> impl Iterator<Item = &Split> {
        self.candidates.iter().map(|measured| &measured.split)
    }

    fn list_splits(&self, split: &Split) -> String {
        let names: Vec<String> = self.splits().map(Split::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let meant = suggestion(&split.to_string(), names.iter().copied());
        format!("{meant}measured: {}", list_first(&names))
    }

    fn check(&self) -> Result<(), SimulationError> {
        for (what, value) in [
            ("link_bytes_per_second", self.link_bytes_per_second),
            ("trainer_cores", self.trainer_cores),
            ("epoch_samples", self.epoch_samples.unwrap_or(1.0)),
        ] {
            require(is_positive(value), what, value, "above 0")?;
        }
        let share = self.request_share;
        let is_share = is_positive(share) && share <= 1.0;
        require(is_share, "request_share", share, "above 0 and up to 1")?;
        let epoch = self.epoch_iterations.unwrap_or(self.iterations);
        for (what, value) in [
            ("batch", self.batch as u64),
            ("iterations", self.iterations),
            ("epoch_iterations", epoch),
        ] {
            require(value > 0, what, value, "at least 1")?;
        }
        if let Some(reuse) = &self.reuse {
            for (what, share) in [
                ("reuse.rows_kept_already", reuse.rows_kept_already),
                ("reuse.fits", reuse.fits),
            ] {
                require((0.0..=1.0).contains(&share), what, share, "0 to 1")?;
            }
            require(reuse.views > 0, "reuse.views", reuse.views, "at least 1")?;
        }
        let mut splits = HashSet::new();
        for candidate in &self.candidates {
            candidate.check(self.batch)?;
            if !splits.insert(&candidate.split) {
                return Err(SimulationError::DuplicateSplit(candidate.split.clone()));
            }
        }
        Ok(())
    }

    /// Computes the plan as a summary for scripts and as an explanation for people.
    ///
    /// # Errors
    /// Returns [`SimulationError::NoCandidate`] if no candidate fits the policy.
    pub fn plan(&self, policy: &Policy) -> Result<(Summary, Explanation), SimulationError> {
        let workload = self.workload();
        let plan = self.choose(&workload, policy);
        let plan = plan.ok_or_else(|| SimulationError::NoCandidate {
            policy: policy.to_string(),
            why: no_match_reason(policy, self.splits()),
        })?;
        let flow = FetchLimits {
            request_samples: (workload.batch as f64 * workload.request_share).round() as usize,
            window: 1,
            ahead: 1,
        };
        let layers = LayersLocation::default();
        Ok((
            plan.summary(flow, &layers),
            plan.explain(&layers, &Modules::default()),
        ))
    }

    /// Computes the speed-up of the best split over `none` for a range of link rates.
    pub fn over_links(&self) -> Vec<LinkPoint> {
        over_links(&self.workload(), |workload| self.choose(workload, &Policy::Auto))
    }

    /// Returns the job that the file describes.
    pub(crate) fn workload(&self) -> Workload {
        let epoch_iterations = self.epoch_iterations.unwrap_or(self.iterations);
        let full = self.batch as f64 * epoch_iterations as f64;
        Workload {
            batch: self.batch,
            iterations: self.iterations,
            epoch_iterations,
            epoch_samples: self.epoch_samples.unwrap_or(full),
            link_bytes_per_second: self.link_bytes_per_second,
            shared_cores: self.shared_cores,
            request_share: self.request_share,
            reuse: self.reuse,
            cost: CostModel {
                objective: self.objective,
                prices: self.prices,
                trainer_cores: self.trainer_cores,
            },
        }
    }

    /// Default for `step_seconds`: the minimum of `trainer_seconds`, which belongs to the candidate with the
    /// least additional work on the trainer.
    fn step_seconds(&self) -> f64 {
        self.candidates.iter().fold(f64::INFINITY, |least, measured| {
            least.min(measured.trainer_seconds)
        })
    }

    fn choose(&self, workload: &Workload, policy: &Policy) -> Option<Plan> {
        Plan::compare(
            |workload| {
                let candidates = self.candidates.iter();
                candidates
                    .filter_map(|measured| measured.candidate(workload, self.step_seconds()))
                    .collect()
            },
            workload,
            policy,
        )
    }
}

fn is_positive(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

/// Returns an error unless the value of `what` is `valid`. `must` describes the valid range.
fn require(
    valid: bool,
    what: impl Into<String>,
    value: impl ToString,
    must: &'static str,
) -> Result<(), SimulationError> {
    match valid {
        true => Ok(()),
        false => Err(SimulationError::InvalidValue {
            what: what.into(),
            value: value.to_string(),
            must,
        }),
    }
}

impl CandidateTimes {
    fn check(&self, batch: usize) -> Result<(), SimulationError> {
        let bytes = self.bytes_of(batch);
        let given = "given for an iteration, or as bytes_per_sample";
        require(bytes.is_some(), self.field("bytes"), "missing", given)?;
        for (what, value) in [
            ("host_seconds", Some(self.host_seconds)),
            ("trainer_seconds", Some(self.trainer_seconds)),
            ("step_seconds", self.step_seconds),
            ("host_core_seconds", self.host_core_seconds),
            ("trainer_core_seconds", self.trainer_core_seconds),
            ("step_core_seconds", self.step_core_seconds),
            ("bytes", bytes),
        ] {
            let value = value.unwrap_or_default();
            let valid = value >= 0.0 && value.is_finite();
            require(valid, self.field(what), value, "0 or more")?;
        }
        Ok(())
    }

    /// Names a field of this candidate for an error.
    fn field(&self, what: &str) -> String {
        format!("{what} of the split '{}'", self.split)
    }

    /// Bytes of an iteration.
    fn bytes_of(&self, batch: usize) -> Option<f64> {
        self.bytes.or_else(|| Some(self.bytes_per_sample? * batch as f64))
    }

    /// Converts the measurements to a candidate. `step_seconds` is the default if the file does not contain a
    /// value.
    fn candidate(&self, workload: &Workload, step_seconds: f64) -> Option<Candidate> {
        let bytes = self.bytes_of(workload.batch)?;
        let step_seconds = self
            .step_seconds
            .unwrap_or(step_seconds)
            .min(self.trainer_seconds);
        let cores = workload.cost.trainer_cores;
        Some(Candidate {
            split: self.split.clone(),
            encoding: self.encoding,
            stages: Stages {
                host_seconds: self.host_seconds,
                link_seconds: bytes / workload.link_bytes_per_second,
                trainer_seconds: self.trainer_seconds,
                step_seconds,
                upload_seconds: 0.0,
            },
            work: Work {
                host_core_seconds: self.host_core_seconds.unwrap_or(self.host_seconds),
                trainer_core_seconds: self.trainer_core_seconds.unwrap_or(self.trainer_seconds * cores),
                step_core_seconds: self.step_core_seconds.unwrap_or(step_seconds * cores),
            },
            bytes_per_sample: bytes / workload.batch as f64,
        })
    }
}
