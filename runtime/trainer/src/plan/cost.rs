//! Usage and cost of a job.

use super::reuse::Pass;
use super::scenario::Scenario;
use super::{Candidate, Prediction, Workload};
use frostline_job::{Objective, Prices};
use serde::Serialize;

const SECONDS_PER_HOUR: f64 = 3600.0;
const BYTES_PER_GB: f64 = 1e9;

/// Core-seconds per batch, excluding idle time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Work {
    /// Core-seconds of all hosts. If a host computes on a GPU, all of the host's cores are counted.
    pub host_core_seconds: f64,
    /// Core-seconds of the trainer. All of the trainer's cores are counted while the engine computes.
    pub trainer_core_seconds: f64,
    /// The training step, which is included in `trainer_core_seconds`. A batch of cached features only needs
    /// this step.
    pub step_core_seconds: f64,
}

/// Objective of the plan and inputs of the cost computation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CostModel {
    pub(crate) objective: Objective,
    /// Prices of cores and traffic. If this is `None`, the plan does not include a cost.
    pub(crate) prices: Option<Prices>,
    /// Cores that are allocated to the trainer for the whole job.
    pub(crate) trainer_cores: f64,
}

/// Minimizes time, without prices.
impl Default for CostModel {
    fn default() -> Self {
        Self {
            objective: Objective::Time,
            prices: None,
            trainer_cores: 1.0,
        }
    }
}

/// Resources used by an epoch or a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usage {
    /// Duration in seconds.
    pub seconds: f64,
    /// Core-seconds of all hosts.
    pub host_core_seconds: f64,
    /// Core-seconds of the trainer, excluding idle time.
    pub trainer_core_seconds: f64,
    /// Bytes from the hosts to the trainer.
    pub bytes: f64,
    /// Cost at the given prices, or `None` without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// Cost in the currency of the prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Cost of the hosts' core-seconds.
    pub host: f64,
    /// Cost of the trainer's cores for the duration of the job, including idle time.
    pub trainer: f64,
    /// Cost of the traffic.
    pub link: f64,
    /// Sum of the costs above.
    pub total: f64,
}

impl Work {
    /// Returns the work for a batch if only the fraction `share` is fetched and the rest is cached.
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
    /// Returns the cost of `usage`, or `None` if there are no prices.
    ///
    /// If host and trainer share cores, they are the same machine: the cores are charged at the trainer's
    /// price, and traffic is free.
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
    /// Returns the same job with the objective of the shortest time.
    pub(crate) fn minimizing_time(&self) -> Self {
        let cost = CostModel {
            objective: Objective::Time,
            ..self.cost
        };
        Self { cost, ..*self }
    }

    /// Returns the usage of the iterations in `passes`, given the total duration. If the last batch of an
    /// epoch is smaller, it is counted accordingly.
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
    /// Returns the usage of an epoch in the first pass. If there is no feature cache, this is the usage of
    /// any epoch.
    pub(super) fn first_epoch(&self, workload: &Workload, prediction: &Prediction) -> Usage {
        let workload = workload.with_encoding(self.encoding);
        let [first, _] = workload.passes();
        let seconds = prediction.iteration_seconds * workload.epoch_iterations as f64;
        workload.usage(self, seconds, &[workload.epoch_of(first)], &Scenario::MEASURED)
    }

    /// Returns the usage of an epoch with cached features, or `None` if the job has no such epoch.
    pub(super) fn later_epoch(&self, workload: &Workload, prediction: &Prediction) -> Option<Usage> {
        let workload = workload.with_encoding(self.encoding);
        let [_, later] = workload.passes();
        let seconds = prediction.later_seconds * workload.epoch_iterations as f64;
        (later.iterations > 0)
            .then(|| workload.usage(self, seconds, &[workload.epoch_of(later)], &Scenario::MEASURED))
    }

    /// Returns the usage of the whole job.
    pub(super) fn job(&self, workload: &Workload, prediction: &Prediction) -> Usage {
        self.job_in(workload, prediction, &Scenario::MEASURED)
    }

    fn job_in(&self, workload: &Workload, prediction: &Prediction, scenario: &Scenario) -> Usage {
        let workload = workload.with_encoding(self.encoding);
        workload.usage(self, prediction.total_seconds, &workload.passes(), scenario)
    }

    /// The minimized value: either the duration of the job in seconds or the cost.
    pub(crate) fn objective(&self, workload: &Workload) -> f64 {
        self.objective_in(workload, &Scenario::MEASURED)
    }

    /// [`Candidate::objective`] for the given scenario.
    pub(super) fn objective_in(&self, workload: &Workload, scenario: &Scenario) -> f64 {
        let prediction = self.predict_in(workload, scenario);
        match workload.cost.objective {
            Objective::Time => prediction.total_seconds,
            Objective::Cost => workload.minimized(&self.job_in(workload, &prediction, scenario)),
        }
    }

    /// The amount that an iteration of the full pipeline adds to the objective.
    pub(crate) fn iteration_objective(&self, workload: &Workload) -> f64 {
        let traveling = workload.with_encoding(self.encoding);
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
