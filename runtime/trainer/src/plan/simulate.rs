//! Planning on measurements from a file, without host or data: what `frostline plan --json` printed, or others published.

use super::policy::unfit;
use super::text::list_first;
use super::{
    Candidate, CostModel, Explanation, Layers, LinkPoint, Modules, Plan, Reuse, Stages, Summary, Work,
    Workload, over_links,
};
use crate::{Flow, Policy};
use frostline_job::{Objective, Prices};
use frostline_wire::{Encoding, Split};
use serde::Deserialize;
use std::collections::HashSet;

/// Measured candidates of one job, in the order of execution, the freeze cut last. `docs/planning.md` describes the file; what else
/// stands there, as in the output of `frostline plan --json`, is not looked at.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Simulation {
    link_bytes_per_second: f64,
    batch: usize,
    iterations: u64,
    /// One epoch without.
    epoch_iterations: Option<u64>,
    /// Full batches without.
    epoch_samples: Option<f64>,
    /// Cores that the trainer holds.
    #[serde(default = "one")]
    trainer_cores: f64,
    #[serde(skip)]
    objective: Objective,
    #[serde(skip)]
    prices: Option<Prices>,
    reuse: Option<Reuse>,
    #[serde(default)]
    shared_cores: bool,
    /// Where nothing is known about requests, the first batch is taken to be extracted whole before it travels.
    #[serde(default = "one")]
    request_share: f64,
    candidates: Vec<CandidateTimes>,
}

/// One candidate: seconds and bytes of an iteration.
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
    /// Those of one core without.
    host_core_seconds: Option<f64>,
    /// Those of all the trainer's cores without, as is the step.
    trainer_core_seconds: Option<f64>,
    step_core_seconds: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// A simulation that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// It is no JSON of this form.
    #[error(
        "invalid simulation: {0}; use the output of `frostline plan --json`, or see runtime/trainer/docs/planning.md"
    )]
    Json(#[from] serde_json::Error),
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
    #[error("duplicate split '{0}'")]
    Twice(Split),
    /// The policy chooses none of the candidates.
    #[error("no candidate fits the policy '{policy}': {why}")]
    NoCandidate {
        /// The policy.
        policy: String,
        /// What there is, and what was probably meant.
        why: String,
    },
    /// A split that is to be considered was not measured.
    #[error("the split '{split}' was not measured: {why}")]
    NotMeasured {
        /// The split.
        split: Split,
        /// What there is.
        why: String,
    },
}

impl Simulation {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// [`SimulationError::Json`], [`SimulationError::Figure`], [`SimulationError::Twice`].
    pub fn parse(text: &str) -> Result<Self, SimulationError> {
        let simulation: Self = serde_json::from_str(text)?;
        simulation.check()?;
        Ok(simulation)
    }

    /// The same over a link that moves this many bytes per second.
    #[must_use]
    pub fn with_link(mut self, link_bytes_per_second: f64) -> Self {
        self.link_bytes_per_second = link_bytes_per_second;
        self
    }

    /// The same for a plan that minimizes this, at these prices.
    #[must_use]
    pub fn with_objective(mut self, objective: Objective, prices: Option<Prices>) -> Self {
        (self.objective, self.prices) = (objective, prices);
        self
    }

    /// The same with these candidates alone.
    ///
    /// # Errors
    /// [`SimulationError::NotMeasured`].
    pub fn with_candidates(mut self, splits: &[Split]) -> Result<Self, SimulationError> {
        let missing = |split: &&Split| !self.splits().any(|measured| measured == *split);
        if let Some(split) = splits.iter().find(missing) {
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
        let name = split.to_string();
        let meant = match frostline_graph::similar(&name, names.iter().copied()).as_slice() {
            [] => String::new(),
            similar => format!("did you mean {}? ", similar.join(" or ")),
        };
        format!("{meant}measured: {}", list_first(&names))
    }

    fn check(&self) -> Result<(), SimulationError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let (link, share) = (self.link_bytes_per_second, self.request_share);
        for (what, value) in [
            ("link_bytes_per_second", link),
            ("trainer_cores", self.trainer_cores),
            ("epoch_samples", self.epoch_samples.unwrap_or(1.0)),
        ] {
            if !positive(value) {
                return Err(figure(what, value, "above 0"));
            }
        }
        if !(positive(share) && share <= 1.0) {
            return Err(figure("request_share", share, "above 0 and at most 1"));
        }
        let epoch = self.epoch_iterations.unwrap_or(self.iterations);
        for (what, value) in [
            ("batch", self.batch as u64),
            ("iterations", self.iterations),
            ("epoch_iterations", epoch),
        ] {
            if value == 0 {
                return Err(figure(what, value, "at least 1"));
            }
        }
        self.reuse.as_ref().map_or(Ok(()), check_reuse)?;
        let mut splits = HashSet::new();
        for candidate in &self.candidates {
            candidate.check(self.batch)?;
            if !splits.insert(&candidate.split) {
                return Err(SimulationError::Twice(candidate.split.clone()));
            }
        }
        Ok(())
    }

    /// The plan for it: for scripts, and in words.
    ///
    /// # Errors
    /// [`SimulationError::NoCandidate`].
    pub fn plan(&self, policy: &Policy) -> Result<(Summary, Explanation), SimulationError> {
        let workload = self.workload();
        let plan = self.choose(&workload, policy);
        let plan = plan.ok_or_else(|| SimulationError::NoCandidate {
            policy: policy.to_string(),
            why: unfit(policy, self.splits()),
        })?;
        let flow = Flow {
            request_samples: (workload.batch as f64 * workload.request_share).round() as usize,
            window: 1,
            ahead: 1,
        };
        let layers = Layers::default();
        Ok((
            plan.summary(flow, &layers),
            plan.explain(&layers, &Modules::default()),
        ))
    }

    /// What the best split is worth over links of any speed.
    pub fn over_links(&self) -> Vec<LinkPoint> {
        over_links(&self.workload(), |workload| self.choose(workload, &Policy::Auto))
    }

    /// The job described.
    pub(super) fn workload(&self) -> Workload {
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

    /// Where no step is given, the trainer's least time at any split: there it has the least to do beside the step.
    fn step_seconds(&self) -> f64 {
        let least = |least: f64, measured: &CandidateTimes| least.min(measured.trainer_seconds);
        self.candidates.iter().fold(f64::INFINITY, least)
    }

    fn choose(&self, workload: &Workload, policy: &Policy) -> Option<Plan> {
        let candidates = |workload: &Workload| {
            let candidates = self.candidates.iter();
            candidates
                .filter_map(|measured| measured.candidate(workload, self.step_seconds()))
                .collect()
        };
        Plan::compare(candidates, workload, policy)
    }
}

fn check_reuse(reuse: &Reuse) -> Result<(), SimulationError> {
    let shares = [
        ("reuse.rows_kept_already", reuse.rows_kept_already),
        ("reuse.fits", reuse.fits),
    ];
    for (what, share) in shares {
        if !(0.0..=1.0).contains(&share) {
            return Err(figure(what, share, "0 to 1"));
        }
    }
    match reuse.views {
        0 => Err(figure("reuse.views", 0, "at least 1")),
        _ => Ok(()),
    }
}

fn figure(what: impl Into<String>, value: impl ToString, must: &'static str) -> SimulationError {
    SimulationError::Figure {
        what: what.into(),
        value: value.to_string(),
        must,
    }
}

impl CandidateTimes {
    fn check(&self, batch: usize) -> Result<(), SimulationError> {
        let of = |what: &str| format!("{what} of the split '{}'", self.split);
        let given = "given for an iteration, or as bytes_per_sample";
        let bytes = self.bytes_of(batch);
        let bytes = bytes.ok_or_else(|| figure(of("bytes"), "missing", given))?;
        let fields = [
            ("host_seconds", self.host_seconds),
            ("trainer_seconds", self.trainer_seconds),
            ("step_seconds", self.step_seconds.unwrap_or_default()),
            ("host_core_seconds", self.host_core_seconds.unwrap_or_default()),
            (
                "trainer_core_seconds",
                self.trainer_core_seconds.unwrap_or_default(),
            ),
            ("step_core_seconds", self.step_core_seconds.unwrap_or_default()),
            ("bytes", bytes),
        ];
        for (what, value) in fields {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(figure(of(what), value, "0 or more"));
            }
        }
        Ok(())
    }

    /// Bytes of an iteration.
    fn bytes_of(&self, batch: usize) -> Option<f64> {
        self.bytes.or_else(|| Some(self.bytes_per_sample? * batch as f64))
    }

    /// `step_seconds` where none is given.
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
