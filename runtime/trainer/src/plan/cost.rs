//! What a job uses of cores and link, and what that costs.

use super::reuse::Pass;
use super::scenario::Scenario;
use super::{Candidate, Prediction, Workload};
use frostline_job::{Objective, Prices};
use serde::Serialize;

const SECONDS_PER_HOUR: f64 = 3600.0;
const BYTES_PER_GB: f64 = 1e9;

/// Core-seconds of one batch: the time that cores work on it, without their waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Work {
    /// On all hosts together. A host that computes on a GPU counts with all its cores.
    pub host_core_seconds: f64,
    /// On the trainer. While its engine computes, it counts with all its cores.
    pub trainer_core_seconds: f64,
    /// Of these, the training step: all that a batch of cached rows takes.
    pub step_core_seconds: f64,
}

/// What a plan minimizes, and what it needs to tell a job's cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CostModel {
    /// What is minimized.
    pub(crate) objective: Objective,
    /// What cores and traffic cost; without prices a plan shows no cost.
    pub(crate) prices: Option<Prices>,
    /// Cores that the trainer holds from the job's start to its end.
    pub(crate) trainer_cores: f64,
}

/// Minimizes time, knows no prices.
impl Default for CostModel {
    fn default() -> Self {
        Self {
            objective: Objective::Time,
            prices: None,
            trainer_cores: 1.0,
        }
    }
}

/// What an epoch or a job uses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usage {
    /// How long it takes.
    pub seconds: f64,
    /// Work of all hosts.
    pub host_core_seconds: f64,
    /// Work of the trainer, without its waits.
    pub trainer_core_seconds: f64,
    /// Bytes from the hosts to the trainer.
    pub bytes: f64,
    /// At the given prices; not there without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// Money, in the currency of the prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Of the hosts' work.
    pub host: f64,
    /// Of the trainer's cores from start to end.
    pub trainer: f64,
    /// Of the bytes.
    pub link: f64,
    /// All together.
    pub total: f64,
}

impl Work {
    /// The same for a batch of which this share is fetched, and the rest is cached.
    fn fetching(&self, share: f64) -> Self {
        let step = self.step_core_seconds.min(self.trainer_core_seconds);
        Self {
            host_core_seconds: self.host_core_seconds * share,
            trainer_core_seconds: self.trainer_core_seconds * share + step * (1.0 - share),
            ..*self
        }
    }
}

impl CostModel {
    /// What this use costs; `None` without prices. Where host and trainer share their cores they are one machine: its cores are paid as the
    /// trainer's, and no byte leaves it.
    fn cost(&self, usage: &Usage, shared_cores: bool) -> Option<Cost> {
        let prices = self.prices?;
        let elsewhere = if shared_cores { 0.0 } else { 1.0 };
        let host = elsewhere * prices.host * usage.host_core_seconds / SECONDS_PER_HOUR;
        let trainer = prices.trainer * self.trainer_cores * usage.seconds / SECONDS_PER_HOUR;
        let link = elsewhere * prices.gb * usage.bytes / BYTES_PER_GB;
        Some(Cost {
            host,
            trainer,
            link,
            total: host + trainer + link,
        })
    }
}

impl Workload {
    /// The same job, planned for the shortest time.
    pub(crate) fn minimizing_time(&self) -> Self {
        let cost = CostModel {
            objective: Objective::Time,
            ..self.cost
        };
        Self { cost, ..*self }
    }

    /// What iterations of these passes use in so many seconds. The last batch of an epoch counts with the samples that it has.
    fn usage(&self, candidate: &Candidate, seconds: f64, passes: &[Pass], scenario: &Scenario) -> Usage {
        let full = self.epoch_samples / (self.batch as f64 * self.epoch_iterations.max(1) as f64);
        let mut usage = Usage {
            seconds,
            host_core_seconds: 0.0,
            trainer_core_seconds: 0.0,
            bytes: 0.0,
            cost: None,
        };
        for pass in passes {
            let batches = pass.iterations as f64 * full;
            let work = candidate.work.fetching(pass.fetched);
            usage.host_core_seconds += batches * work.host_core_seconds * scenario.host;
            usage.trainer_core_seconds += batches * work.trainer_core_seconds * scenario.trainer;
            usage.bytes += batches * pass.fetched * self.batch as f64 * candidate.bytes_per_sample;
        }
        usage.cost = self.cost.cost(&usage, self.shared_cores);
        usage
    }
}

impl Candidate {
    /// What an epoch uses that sees its rows for the first time; any epoch where nothing is cached.
    pub(super) fn first_epoch(&self, workload: &Workload, prediction: &Prediction) -> Usage {
        let workload = workload.traveling(self.encoding);
        let [first, _] = workload.passes();
        let seconds = prediction.iteration_seconds * workload.epoch_iterations as f64;
        workload.usage(self, seconds, &[workload.epoch_of(first)], &Scenario::MEASURED)
    }

    /// What an epoch uses that takes cached rows; `None` where no epoch does.
    pub(super) fn later_epoch(&self, workload: &Workload, prediction: &Prediction) -> Option<Usage> {
        let workload = workload.traveling(self.encoding);
        let [_, later] = workload.passes();
        let seconds = prediction.later_seconds * workload.epoch_iterations as f64;
        let usage = || workload.usage(self, seconds, &[workload.epoch_of(later)], &Scenario::MEASURED);
        (later.iterations > 0).then(usage)
    }

    /// What the whole job uses.
    pub(super) fn job(&self, workload: &Workload, prediction: &Prediction) -> Usage {
        self.job_in(workload, prediction, &Scenario::MEASURED)
    }

    fn job_in(&self, workload: &Workload, prediction: &Prediction, scenario: &Scenario) -> Usage {
        let workload = workload.traveling(self.encoding);
        workload.usage(self, prediction.total_seconds, &workload.passes(), scenario)
    }

    /// What the plan minimizes: the job's seconds, or its cost.
    pub(crate) fn objective(&self, workload: &Workload) -> f64 {
        self.objective_in(workload, &Scenario::MEASURED)
    }

    /// [`Candidate::objective`], if tiers turn out so.
    pub(super) fn objective_in(&self, workload: &Workload, scenario: &Scenario) -> f64 {
        let prediction = self.predict_in(workload, scenario);
        let minimized = |usage: Usage| workload.minimized(&usage);
        match workload.cost.objective {
            Objective::Time => prediction.total_seconds,
            Objective::Cost => minimized(self.job_in(workload, &prediction, scenario)),
        }
    }

    /// What one iteration of the full pipeline adds to what the plan minimizes.
    pub(crate) fn iteration_objective(&self, workload: &Workload) -> f64 {
        let traveling = workload.traveling(self.encoding);
        let [first, _] = traveling.passes();
        let steady = self.predict(workload).steady_seconds;
        let pass = Pass {
            iterations: 1,
            ..first
        };
        workload.minimized(&traveling.usage(self, steady, &[pass], &Scenario::MEASURED))
    }
}

impl Workload {
    fn epoch_of(&self, pass: Pass) -> Pass {
        Pass {
            iterations: self.epoch_iterations,
            ..pass
        }
    }

    fn minimized(&self, usage: &Usage) -> f64 {
        match (self.cost.objective, usage.cost) {
            (Objective::Cost, Some(cost)) => cost.total,
            _ => usage.seconds,
        }
    }
}
