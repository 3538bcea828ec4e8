//! Planning on measurements from a file, without host or data, so that published measurements can be replayed.

use super::{Candidate, Plan, Policy, Stages, Workload};
use frostline_wire::{Encoding, Split};
use serde::Deserialize;

/// Measured candidates of one job: seconds and bytes of one iteration each, in the order of execution, the freeze cut last.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    /// What the link moves.
    pub link_bytes_per_second: f64,
    /// Samples of an iteration.
    pub batch: usize,
    /// Iterations of the job.
    pub iterations: u64,
    /// The candidates.
    pub candidates: Vec<Measured>,
}

/// One candidate of a [`Simulation`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// `none`, `input` or a cut's name.
    pub split: Split,
    /// Seconds of an iteration on the host.
    pub host_seconds: f64,
    /// Seconds of an iteration on the trainer.
    pub trainer_seconds: f64,
    /// Bytes of an iteration on the link.
    pub bytes: f64,
}

/// A simulation that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// It is no JSON of this form.
    #[error("it is no description of a simulation: {0}")]
    Json(String),
    /// A figure cannot be.
    #[error("{what} is {value}; it must be {must}")]
    Figure {
        /// Which one.
        what: String,
        /// What it is.
        value: String,
        /// What it may be.
        must: &'static str,
    },
    /// Two candidates have the same split.
    #[error("the split '{0}' is there twice")]
    Twice(Split),
    /// The policy names a split that is not among the candidates, or there are none.
    #[error("no candidate fits the policy '{0}'")]
    NoCandidate(String),
}

impl Simulation {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// [`SimulationError::Json`], [`SimulationError::Figure`], [`SimulationError::Twice`].
    pub fn parse(text: &str) -> Result<Self, SimulationError> {
        let simulation: Self =
            serde_json::from_str(text).map_err(|error| SimulationError::Json(error.to_string()))?;
        simulation.check()?;
        Ok(simulation)
    }

    fn check(&self) -> Result<(), SimulationError> {
        let figure = |what: String, value: String, must| SimulationError::Figure { what, value, must };
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if !positive(self.link_bytes_per_second) {
            let value = self.link_bytes_per_second.to_string();
            return Err(figure("link_bytes_per_second".to_owned(), value, "above 0"));
        }
        for (what, value) in [("batch", self.batch as u64), ("iterations", self.iterations)] {
            if value == 0 {
                return Err(figure(what.to_owned(), "0".to_owned(), "at least 1"));
            }
        }
        for (index, candidate) in self.candidates.iter().enumerate() {
            let fields = [
                ("host_seconds", candidate.host_seconds),
                ("trainer_seconds", candidate.trainer_seconds),
                ("bytes", candidate.bytes),
            ];
            for (what, value) in fields {
                if !(value >= 0.0 && value.is_finite()) {
                    let what = format!("{what} of the split '{}'", candidate.split);
                    return Err(figure(what, value.to_string(), "0 or more"));
                }
            }
            let earlier = self.candidates.get(..index).unwrap_or_default();
            if earlier.iter().any(|other| other.split == candidate.split) {
                return Err(SimulationError::Twice(candidate.split.clone()));
            }
        }
        Ok(())
    }

    /// The job described.
    pub fn workload(&self) -> Workload {
        Workload {
            batch: self.batch,
            iterations: self.iterations,
            link_bytes_per_second: self.link_bytes_per_second,
            shared_cores: false,
            // Nothing is known about requests, so the first batch is taken to be extracted whole before it travels.
            request_share: 1.0,
        }
    }

    /// The plan for it.
    ///
    /// # Errors
    /// [`SimulationError::NoCandidate`].
    pub fn plan(&self, policy: &Policy) -> Result<Plan, SimulationError> {
        let candidate = |measured: &Measured| Candidate {
            split: measured.split.clone(),
            encoding: Encoding::F32,
            stages: Stages {
                host_seconds: measured.host_seconds,
                link_seconds: measured.bytes / self.link_bytes_per_second,
                trainer_seconds: measured.trainer_seconds,
                upload_seconds: 0.0,
            },
            bytes_per_sample: measured.bytes / self.batch as f64,
        };
        let candidates = self.candidates.iter().map(candidate).collect();
        Plan::choose(candidates, &self.workload(), policy)
            .ok_or_else(|| SimulationError::NoCandidate(policy.to_string()))
    }
}
