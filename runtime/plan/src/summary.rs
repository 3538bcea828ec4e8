//! Machine-readable form of a plan.

use crate::candidate::Ranked;
use crate::{Bottleneck, LayersLocation, Plan, Reuse, Stages, Usage, Work, Workload};
use frostline_job::{FetchLimits, Objective, Prices};
use frostline_wire::{Encoding, Split};
use serde::Serialize;

/// Plan in the output of `frostline plan --json`, which adds the measured link and the duration of the
/// decision unless the plan is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The chosen split.
    pub split: Split,
    /// The encoding.
    pub encoding: Encoding,
    /// The policy that chose the split.
    pub policy: String,
    /// Samples per request.
    pub request_samples: usize,
    /// Maximum number of open requests per host.
    pub window: usize,
    /// Number of batches to extract ahead of the training step.
    pub batches_ahead: usize,
    /// Samples per guest call, if the hosts report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<usize>,
    /// Samples per engine batch on the hosts, if the job fixes it or the hosts report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_batch: Option<usize>,
    /// Samples per iteration.
    pub batch: usize,
    /// Iterations in the job.
    pub iterations: u64,
    /// Iterations per epoch.
    pub epoch_iterations: u64,
    /// Samples per epoch. The last batch can be smaller.
    pub epoch_samples: f64,
    /// Number of iterations that use cached features. Partially cached iterations are counted proportionally.
    pub kept_iterations: u64,
    /// Bytes of cached features at the end of the job.
    pub store_bytes: u64,
    /// Parameters of the feature cache, or `None` if features are not cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
    /// Link rate in bytes per second.
    pub link_bytes_per_second: f64,
    /// True if host and trainer share cores.
    pub shared_cores: bool,
    /// Samples per request as a fraction of the batch.
    pub request_share: f64,
    /// Predicted seconds per iteration. With a feature cache, this is the value for the first pass.
    pub iteration_seconds: f64,
    /// The tier that limits the iteration rate.
    pub bottleneck: Bottleneck,
    /// Predicted seconds for a first-pass epoch. If there is no feature cache, this is the value for any
    /// epoch.
    pub first_epoch_seconds: f64,
    /// Predicted seconds for an epoch with cached features, or `None` if the job has no such epoch.
    pub later_epoch_seconds: Option<f64>,
    /// Predicted seconds of the whole job.
    pub total_seconds: f64,
    /// The minimized quantity.
    pub objective: Objective,
    /// Prices of cores and traffic, if provided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Cores that are allocated to the trainer for the whole job.
    pub trainer_cores: f64,
    /// Usage of a first-pass epoch. If there is no feature cache, this is the usage of any epoch.
    pub first_epoch: Usage,
    /// Usage of an epoch with cached features, or `None` if the job has no such epoch.
    pub later_epoch: Option<Usage>,
    /// Usage of the whole job.
    pub job: Usage,
    /// The shortest job, or `None` if the objective is already time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortest: Option<ShortestJob>,
    /// Bytes of frozen layers that were sent to the host for this plan, or 0 if none were sent.
    pub upload_bytes: u64,
    /// Seconds for this transfer. It happens before the split is chosen, so the predictions do not include
    /// it.
    pub upload_seconds: f64,
    /// Explanation of when the transfer is paid back or why the layers stay on the trainer.
    pub upload_reason: Option<String>,
    /// All candidates in order of execution.
    pub candidates: Vec<SummaryRow>,
}

/// Candidate in a [`Summary`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryRow {
    /// The split.
    pub split: Split,
    /// The encoding.
    pub encoding: Encoding,
    /// Predicted seconds per iteration, including the proportional start and end of the job. With a feature
    /// cache, this is the value for the first pass.
    pub iteration_seconds: f64,
    /// The tier that limits the iteration rate.
    pub bottleneck: Bottleneck,
    /// Bytes per sample on the link.
    pub bytes_per_sample: f64,
    /// Seconds per batch on each tier.
    #[serde(flatten)]
    pub stages: Stages,
    /// Predicted seconds of the whole job.
    pub total_seconds: f64,
    /// Core-seconds per batch.
    #[serde(flatten)]
    pub work: Work,
    /// See the field of the same name in [`Summary`].
    pub first_epoch: Usage,
    /// See the field of the same name in [`Summary`].
    pub later_epoch: Option<Usage>,
    /// See the field of the same name in [`Summary`].
    pub job: Usage,
}

/// Alternative plan that minimizes the duration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShortestJob {
    /// The split.
    pub split: Split,
    /// The encoding.
    pub encoding: Encoding,
    /// Usage of the whole job.
    pub job: Usage,
}

impl Ranked {
    fn summary(&self, workload: &Workload) -> SummaryRow {
        let candidate = &self.candidate;
        let prediction = &self.prediction;
        SummaryRow {
            split: candidate.split.clone(),
            encoding: candidate.encoding,
            iteration_seconds: prediction.iteration_seconds,
            bottleneck: prediction.bottleneck,
            bytes_per_sample: candidate.bytes_per_sample,
            stages: candidate.stages,
            total_seconds: prediction.total_seconds,
            work: candidate.work,
            first_epoch: candidate.first_epoch(workload, prediction),
            later_epoch: candidate.later_epoch(workload, prediction),
            job: candidate.job(workload, prediction),
        }
    }
}

impl Plan {
    /// Converts the plan to the machine-readable form. `flow` provides the requests.
    pub(crate) fn summary(&self, flow: FetchLimits, layers: &LayersLocation) -> Summary {
        let Self { chosen, workload, .. } = self;
        let prediction = &chosen.prediction;
        let kept = workload.with_encoding(chosen.candidate.encoding);
        let [_, later] = kept.passes();
        let epoch_iterations = workload.epoch_iterations as f64;
        let (upload_bytes, upload_seconds) = layers.sent();
        let uses = chosen.summary(workload);
        let shortest = self.shortest.as_ref().map(|shortest| ShortestJob {
            split: shortest.candidate.split.clone(),
            encoding: shortest.candidate.encoding,
            job: shortest.summary(workload).job,
        });
        let candidates = self.candidates.iter().map(|ranked| ranked.summary(workload));
        Summary {
            split: chosen.candidate.split.clone(),
            encoding: chosen.candidate.encoding,
            policy: self.policy.to_string(),
            request_samples: flow.request_samples,
            window: flow.window,
            batches_ahead: flow.ahead,
            grant: None,
            engine_batch: None,
            batch: workload.batch,
            iterations: workload.iterations,
            epoch_iterations: workload.epoch_iterations,
            epoch_samples: workload.epoch_samples,
            kept_iterations: kept.kept_iterations(),
            store_bytes: kept.store_bytes(),
            reuse: workload.reuse,
            link_bytes_per_second: workload.link_bytes_per_second,
            shared_cores: workload.shared_cores,
            request_share: workload.request_share,
            iteration_seconds: prediction.iteration_seconds,
            bottleneck: prediction.bottleneck,
            first_epoch_seconds: prediction.iteration_seconds * epoch_iterations,
            later_epoch_seconds: (later.iterations > 0)
                .then_some(prediction.later_seconds * epoch_iterations),
            total_seconds: prediction.total_seconds,
            objective: workload.cost.objective,
            prices: workload.cost.prices,
            trainer_cores: workload.cost.trainer_cores,
            first_epoch: uses.first_epoch,
            later_epoch: uses.later_epoch,
            job: uses.job,
            shortest,
            upload_bytes,
            upload_seconds,
            upload_reason: layers.explain(self),
            candidates: candidates.collect(),
        }
    }
}
