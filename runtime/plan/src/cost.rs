//! Usage and cost of a job.

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
pub struct CostModel {
    /// The minimized quantity.
    pub objective: Objective,
    /// Prices of cores and traffic. If this is `None`, the plan does not include a cost.
    pub prices: Option<Prices>,
    /// Cores that are allocated to the trainer for the whole job.
    pub trainer_cores: f64,
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
    pub(crate) fn fetching(&self, share: f64) -> Self {
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
    pub(crate) fn cost(&self, usage: &Usage, shared_cores: bool) -> Option<Cost> {
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
