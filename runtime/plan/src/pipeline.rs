//! Predicts the duration of a job. Host, link and trainer form a pipeline: while a batch is used for
//! training, the next batches are extracted and sent.

use crate::reuse::FetchPass;
use crate::scenario::Scenario;
use crate::{CostModel, Reuse, Stages, Usage};
use frostline_job::Objective;
use frostline_wire::Encoding;
use serde::Serialize;

/// Tier that limits the iteration rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Bottleneck {
    /// The host is always busy.
    Host,
    /// The link is always busy.
    Link,
    /// The trainer is always busy.
    Trainer,
}

/// Parameters of the job for a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Samples per training step.
    pub batch: usize,
    /// Training steps in the job.
    pub iterations: u64,
    /// Training steps per epoch.
    pub epoch_iterations: u64,
    /// Samples per epoch. The last batch can be smaller.
    pub epoch_samples: f64,
    /// Link rate in bytes per second.
    pub link_bytes_per_second: f64,
    /// True if host and trainer use the same cores, as in the embedded default, or the same GPU. In this case
    /// the times of the two tiers are added.
    pub shared_cores: bool,
    /// Samples per request as a fraction of the batch, above 0 and up to 1. The first requests of a batch are
    /// already sent while the rest is extracted.
    pub request_share: f64,
    /// Parameters of the feature cache, or `None` if all epochs fetch everything.
    pub reuse: Option<Reuse>,
    /// Objective and prices.
    pub cost: CostModel,
}

/// Prediction for the job at a split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct JobPrediction {
    /// Seconds between batches while the pipeline is full. With a feature cache, this is the value for the
    /// first pass.
    pub(crate) steady_seconds: f64,
    pub(crate) total_seconds: f64,
    /// Seconds that depend on the split. This excludes the training steps on cached features.
    pub(crate) fetching_seconds: f64,
    /// Mean seconds per iteration in the first pass, including fill and drain. Without a feature cache, all
    /// iterations belong to the first pass.
    pub(crate) iteration_seconds: f64,
    /// Seconds between batches after the first pass.
    pub(crate) later_seconds: f64,
    /// Bottleneck of the first pass while the pipeline is full.
    pub(crate) bottleneck: Bottleneck,
}

impl Workload {
    /// Predicts the duration of the job in `scenario` if the tiers need `stages` per batch.
    ///
    /// - Fill: the first batch is extracted and sent. Both overlap except for a single request.
    /// - Steady state: the slowest tier determines the rate.
    /// - Drain: the last batch is used for training.
    ///
    /// HAPI (SoCC '24, section 5) has the same structure, but adds extraction and transfer, which overlap
    /// here. With a feature cache this describes the first pass. Later iterations only fetch the features
    /// that did not fit in the cache, and the pipeline is not filled again.
    pub(crate) fn predict(&self, stages: &Stages, scenario: &Scenario) -> JobPrediction {
        let stages = scenario.stages(stages);
        let [first, later] = self.passes();
        let Stages {
            host_seconds: host,
            link_seconds: link,
            trainer_seconds: trainer,
            upload_seconds: upload,
            ..
        } = stages.fetching(first.fetched);
        let (steady, bottleneck) = self.steady(&stages, first, scenario);
        let (later_seconds, _) = self.steady(&stages, later, scenario);
        let fill = host.max(link) + host.min(link) * self.request_share;
        let others = first.iterations.saturating_sub(1) as f64;
        let first_seconds = steady.mul_add(others, upload + fill + trainer);
        let later_count = later.iterations as f64;
        let filling = if first.fetched > 0.0 {
            first_seconds
        } else {
            upload
        };
        JobPrediction {
            steady_seconds: steady,
            total_seconds: later_seconds.mul_add(later_count, first_seconds),
            fetching_seconds: (later_seconds - stages.step_seconds)
                .max(0.0)
                .mul_add(later_count, filling),
            iteration_seconds: first_seconds / first.iterations.max(1) as f64,
            later_seconds,
            bottleneck,
        }
    }

    /// Returns the seconds between batches of `pass` and the bottleneck.
    fn steady(&self, stages: &Stages, pass: FetchPass, scenario: &Scenario) -> (f64, Bottleneck) {
        let Stages {
            host_seconds: host,
            link_seconds: link,
            trainer_seconds: trainer,
            ..
        } = stages.fetching(pass.fetched);
        let (computing, less) = if self.shared_cores {
            (host + trainer, 0.0)
        } else {
            (host.max(trainer), host.min(trainer))
        };
        let next = less.max(computing.min(link));
        let bottleneck = if link >= computing {
            Bottleneck::Link
        } else if host >= trainer {
            Bottleneck::Host
        } else {
            Bottleneck::Trainer
        };
        (
            scenario.not_overlapping.mul_add(next, computing.max(link)),
            bottleneck,
        )
    }

    /// Returns the same job with activations sent, and therefore cached, in `encoding`.
    pub(crate) fn with_encoding(&self, encoding: Encoding) -> Self {
        let reuse = self.reuse.map(|reuse| reuse.with_encoding(encoding));
        Self { reuse, ..*self }
    }

    /// Returns the same job with the objective of the shortest time.
    pub(crate) fn minimizing_time(&self) -> Self {
        let cost = CostModel {
            objective: Objective::Time,
            ..self.cost
        };
        Self { cost, ..*self }
    }

    /// Returns the cost or the duration of `usage`, depending on the objective.
    pub(crate) fn minimized(&self, usage: &Usage) -> f64 {
        match (self.cost.objective, usage.cost) {
            (Objective::Cost, Some(cost)) => cost.total,
            _ => usage.seconds,
        }
    }

    /// Returns the rest of the job if `iterations` iterations still fetch. Iterations on cached features are
    /// omitted because the split does not affect them.
    pub(crate) fn only_fetching(&self, iterations: u64) -> Self {
        Self {
            iterations,
            epoch_iterations: iterations,
            epoch_samples: (self.batch as u64 * iterations) as f64,
            reuse: None,
            ..*self
        }
    }

    /// Returns the first pass and the later iterations. In the first pass, the samples of all views are new.
    /// Without a feature cache, all iterations belong to the first pass.
    pub(crate) fn passes(&self) -> [FetchPass; 2] {
        match &self.reuse {
            Some(reuse) => reuse.passes(self.iterations, self.epoch_iterations),
            None => [FetchPass::of_fetched(self.iterations), FetchPass::of_fetched(0)],
        }
    }

    /// Number of iterations that still fetch after `done` iterations. Partially cached iterations are counted
    /// proportionally.
    pub(crate) fn fetching_after(&self, done: u64) -> u64 {
        let [first, later] = self.passes();
        let later_done = done.saturating_sub(first.iterations);
        (first.remaining_fetches(done) + later.remaining_fetches(later_done)).round() as u64
    }

    /// Number of iterations that use cached features. Partially cached iterations are counted proportionally.
    pub(crate) fn kept_iterations(&self) -> u64 {
        self.iterations.saturating_sub(self.fetching_after(0))
    }

    /// Bytes in the feature cache when the job ends.
    pub(crate) fn store_bytes(&self) -> u64 {
        self.reuse.map_or(0, |reuse| reuse.store_bytes())
    }
}
