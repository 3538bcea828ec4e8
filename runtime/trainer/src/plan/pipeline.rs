//! The time of a job as a pipeline of three tiers that overlap: while the trainer trains one batch, the next ones are extracted
//! and travel.

use serde::Serialize;

/// Seconds one batch takes on each tier when nothing else runs there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stages {
    /// Reading, decoding, the prefix and encoding on the host; they overlap as the host's device allows.
    pub host_seconds: f64,
    /// The batch's bytes on the link.
    pub link_seconds: f64,
    /// Decoding, the middle and the training step on the trainer.
    pub trainer_seconds: f64,
    /// Once per job: what has to be uploaded for this split and is not there yet. Frozen layers are there when a split is chosen; what
    /// they took is told beside the plan.
    pub upload_seconds: f64,
}

/// What bounds an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Bottleneck {
    /// The host computes all the time.
    Host,
    /// The link is full all the time.
    Link,
    /// The trainer computes all the time.
    Trainer,
}

/// The job the times are for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Workload {
    /// Samples of a training step.
    pub(crate) batch: usize,
    /// Batches of the whole job, those of validation included.
    pub(crate) iterations: u64,
    /// What the link moves, in bytes per second.
    pub(crate) link_bytes_per_second: f64,
    /// Whether host and trainer compute on the same cores, as in the embedded default: their times add up then.
    pub(crate) shared_cores: bool,
    /// Share of a batch that one request is, above 0 and at most 1: while a batch is extracted its first requests travel already.
    pub(crate) request_share: f64,
}

/// What a job takes with one split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prediction {
    /// Seconds from one batch to the next once the pipeline is full.
    pub(crate) steady_seconds: f64,
    /// Seconds of the whole job.
    pub(crate) total_seconds: f64,
    /// `total_seconds` over the iterations.
    pub(crate) iteration_seconds: f64,
    /// What bounds the steady state.
    pub(crate) bottleneck: Bottleneck,
}

impl Workload {
    /// The time of the job at a split of these stages.
    ///
    /// Fill: the first batch is extracted and travels, overlapped but for one request. Steady state: the slowest tier. Drain: the
    /// last batch is trained. HAPI (SoCC '24, section 5) has the same shape, but adds extraction and transfer up; here they
    /// overlap.
    pub(crate) fn predict(&self, stages: &Stages) -> Prediction {
        let Stages {
            host_seconds: host,
            link_seconds: link,
            trainer_seconds: trainer,
            upload_seconds: upload,
        } = *stages;
        let computing = if self.shared_cores {
            host + trainer
        } else {
            host.max(trainer)
        };
        let steady = computing.max(link);
        let fill = host.max(link) + host.min(link) * self.request_share;
        let others = self.iterations.saturating_sub(1) as f64;
        let total = steady.mul_add(others, upload + fill + trainer);
        let bottleneck = if link >= computing {
            Bottleneck::Link
        } else if host >= trainer {
            Bottleneck::Host
        } else {
            Bottleneck::Trainer
        };
        Prediction {
            steady_seconds: steady,
            total_seconds: total,
            iteration_seconds: total / self.iterations.max(1) as f64,
            bottleneck,
        }
    }
}
