//! The time of a job as a pipeline of three tiers that overlap: while the trainer trains one batch, the next ones are extracted
//! and travel.

use super::cost::CostModel;
use super::reuse::{Pass, Reuse};
use super::scenario::Scenario;
use super::stages::Stages;
use frostline_wire::Encoding;
use serde::Serialize;

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
    /// Training steps of the whole job.
    pub(crate) iterations: u64,
    /// Those of an epoch.
    pub(crate) epoch_iterations: u64,
    /// Samples of an epoch, whose last batch may have fewer.
    pub(crate) epoch_samples: f64,
    /// What the link moves, in bytes per second.
    pub(crate) link_bytes_per_second: f64,
    /// Whether host and trainer compute on the same cores, as in the embedded default: their times add up then.
    pub(crate) shared_cores: bool,
    /// Share of a batch that one request is, above 0 and at most 1: while a batch is extracted its first requests travel already.
    pub(crate) request_share: f64,
    /// Rows that are kept for later epochs; `None` where every epoch fetches all.
    pub(crate) reuse: Option<Reuse>,
    /// What is minimized, and at what prices.
    pub(crate) cost: CostModel,
}

/// What a job takes with one split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prediction {
    /// Seconds from one batch to the next once the pipeline is full; where rows are kept, in the first pass.
    pub(crate) steady_seconds: f64,
    /// Seconds of the whole job.
    pub(crate) total_seconds: f64,
    /// Of these, what better splits could shorten: all but the epochs' steps that take kept rows.
    pub(crate) fetching_seconds: f64,
    /// Seconds of the first pass over its iterations; of the whole job where nothing is kept.
    pub(crate) iteration_seconds: f64,
    /// Seconds from one batch to the next after the first pass.
    pub(crate) later_seconds: f64,
    /// What bounds the steady state of the first pass.
    pub(crate) bottleneck: Bottleneck,
}

impl Workload {
    /// The time of the job at a split of these stages.
    ///
    /// Fill: the first batch is extracted and travels, overlapped but for one request. Steady state: the slowest tier. Drain: the
    /// last batch is trained. HAPI (SoCC '24, section 5) has the same shape, but adds extraction and transfer up; here they
    /// overlap. Where rows are kept, all that is the first pass; later batches fetch what found no room, and no pipeline fills again.
    pub(crate) fn predict(&self, stages: &Stages) -> Prediction {
        self.predict_in(stages, &Scenario::MEASURED)
    }

    /// [`Workload::predict`], if tiers turn out so.
    pub(super) fn predict_in(&self, stages: &Stages, scenario: &Scenario) -> Prediction {
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
        Prediction {
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

    /// Seconds from one batch of `pass` to the next, and what bounds them.
    fn steady(&self, stages: &Stages, pass: Pass, scenario: &Scenario) -> (f64, Bottleneck) {
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
        (scenario.apart.mul_add(next, computing.max(link)), bottleneck)
    }

    /// The same job where its rows travel, and so are kept, in this encoding.
    pub(crate) fn traveling(&self, encoding: Encoding) -> Self {
        let reuse = self.reuse.map(|reuse| reuse.traveling(encoding));
        Self { reuse, ..*self }
    }

    /// What is left of the job once only this many iterations fetch; those that take kept rows are the same at every split.
    pub(crate) fn fetching(&self, iterations: u64) -> Self {
        Self {
            iterations,
            epoch_iterations: iterations,
            epoch_samples: (self.batch as u64 * iterations) as f64,
            reuse: None,
            ..*self
        }
    }

    /// The passes that see each row of each draw for the first time, and all others. Nothing is kept: all are the first.
    pub(super) fn passes(&self) -> [Pass; 2] {
        match &self.reuse {
            Some(reuse) => reuse.passes(self.iterations, self.epoch_iterations),
            None => [Pass::of_fetched(self.iterations), Pass::of_fetched(0)],
        }
    }

    /// Iterations' worth of rows that are still to be fetched once `done` iterations are over.
    pub(crate) fn fetching_after(&self, done: u64) -> u64 {
        let [first, later] = self.passes();
        let later_done = done.saturating_sub(first.iterations);
        (first.left(done) + later.left(later_done)).round() as u64
    }

    /// Iterations' worth of rows that come from the store.
    pub(super) fn kept_iterations(&self) -> u64 {
        self.iterations.saturating_sub(self.fetching_after(0))
    }

    /// Bytes of the store at the end of the job.
    pub(super) fn store_bytes(&self) -> u64 {
        self.reuse.map_or(0, |reuse| reuse.store_bytes())
    }
}
