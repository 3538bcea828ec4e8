//! A plan as scripts read it.

use super::{Bottleneck, Layers, Plan, Ranked, Reuse, Stages, Usage, Work, Workload};
use crate::Flow;
use frostline_job::{Objective, Prices};
use frostline_wire::{Encoding, Split};
use serde::Serialize;

/// What `frostline plan --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The chosen split.
    pub split: Split,
    /// Its encoding.
    pub encoding: Encoding,
    /// The rule that chose it.
    pub policy: String,
    /// Samples of one request.
    pub request_samples: usize,
    /// Requests open at once.
    pub window: usize,
    /// Batches extracted while one trains.
    pub batches_ahead: usize,
    /// Samples of one guest call on the hosts, where they tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<usize>,
    /// Rows of a run of the layers on the hosts, where they tell, or the job fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_batch: Option<usize>,
    /// Samples of an iteration.
    pub batch: usize,
    /// Iterations of the job.
    pub iterations: u64,
    /// Iterations of an epoch.
    pub epoch_iterations: u64,
    /// Samples of an epoch, whose last batch may have fewer.
    pub epoch_samples: f64,
    /// Iterations' worth of rows that come from the store.
    pub kept_iterations: u64,
    /// What the rows kept take at the end of the job.
    pub store_bytes: u64,
    /// What is kept for later epochs, as it was given; not there where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
    /// What the link moves.
    pub link_bytes_per_second: f64,
    /// Whether host and trainer compute on the same cores.
    pub shared_cores: bool,
    /// Share of a batch that one request is.
    pub request_share: f64,
    /// Predicted seconds of an iteration; where rows are kept, in the first pass.
    pub iteration_seconds: f64,
    /// The stage that bounds it.
    pub bottleneck: Bottleneck,
    /// Predicted seconds of an epoch that sees its rows for the first time; of any where nothing is kept.
    pub first_epoch_seconds: f64,
    /// Predicted seconds of an epoch that takes the rows kept; `None` where no epoch does.
    pub later_epoch_seconds: Option<f64>,
    /// Predicted seconds of the whole job.
    pub total_seconds: f64,
    /// What the plan minimizes.
    pub objective: Objective,
    /// What cores and traffic cost, where that is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Cores that the trainer holds from the job's start to its end.
    pub trainer_cores: f64,
    /// What an epoch uses that sees its rows for the first time; any where nothing is kept.
    pub first_epoch: Usage,
    /// What an epoch uses that takes the rows kept; `None` where no epoch does.
    pub later_epoch: Option<Usage>,
    /// What the whole job uses.
    pub job: Usage,
    /// What the objective time takes; not there where that is the objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortest: Option<ShortestJob>,
    /// Bytes of frozen layers that were sent to the host for this plan; 0 when it had them or they stay here.
    pub upload_bytes: u64,
    /// What sending them took. It is behind us when the split is chosen, so no candidate's time contains it.
    pub upload_seconds: f64,
    /// For people: when the sent layers are paid back, or why they stay here.
    pub upload_reason: Option<String>,
    /// All candidates, in the order of execution.
    pub candidates: Vec<SummaryRow>,
}

/// One candidate of a [`Summary`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryRow {
    /// The split.
    pub split: Split,
    /// Its encoding.
    pub encoding: Encoding,
    /// Predicted seconds of an iteration, the job's start and end spread over all of them; where rows are kept, of the first pass.
    pub iteration_seconds: f64,
    /// The stage that bounds it.
    pub bottleneck: Bottleneck,
    /// Bytes of one sample on the link.
    pub bytes_per_sample: f64,
    /// Seconds of one batch on each tier.
    #[serde(flatten)]
    pub stages: Stages,
    /// Predicted seconds of the whole job.
    pub total_seconds: f64,
    /// Core-seconds of one batch.
    #[serde(flatten)]
    pub work: Work,
    /// As in [`Summary`].
    pub first_epoch: Usage,
    /// As in [`Summary`].
    pub later_epoch: Option<Usage>,
    /// As in [`Summary`].
    pub job: Usage,
}

/// What a plan for the shortest time takes instead.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShortestJob {
    /// Its split.
    pub split: Split,
    /// Its encoding.
    pub encoding: Encoding,
    /// What it uses.
    pub job: Usage,
}

impl Ranked {
    fn summary(&self, workload: &Workload) -> SummaryRow {
        let Self {
            candidate,
            prediction,
        } = self;
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
    /// The plan as scripts read it, for requests by `flow`.
    pub(crate) fn summary(&self, flow: Flow, layers: &Layers) -> Summary {
        let Self { chosen, workload, .. } = self;
        let prediction = &chosen.prediction;
        let kept = workload.traveling(chosen.candidate.encoding);
        let [_, later] = kept.passes();
        let epoch = |iteration_seconds: f64| iteration_seconds * workload.epoch_iterations as f64;
        let (upload_bytes, upload_seconds) = layers.sent();
        let row = |ranked: &Ranked| ranked.summary(workload);
        let uses = row(chosen);
        let shortest = self.shortest.as_ref().map(|shortest| ShortestJob {
            split: shortest.candidate.split.clone(),
            encoding: shortest.candidate.encoding,
            job: row(shortest).job,
        });
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
            first_epoch_seconds: epoch(prediction.iteration_seconds),
            later_epoch_seconds: (later.iterations > 0).then(|| epoch(prediction.later_seconds)),
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
            candidates: self.candidates.iter().map(row).collect(),
        }
    }
}
