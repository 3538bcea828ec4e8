use crate::pipeline::JobPrediction;
use crate::reuse::FetchPass;
use crate::scenario::Scenario;
use crate::{Stages, Usage, Work, Workload};
use frostline_job::Objective;
use frostline_wire::{Encoding, Split};

/// A usable split with the possible encodings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableSplit {
    /// The split.
    pub split: Split,
    /// Possible encodings, with the exact encoding first.
    pub encodings: Vec<Encoding>,
    /// Bytes per sample in the first encoding, before compression. For `none` this is the mean object size.
    pub bytes_per_sample: u64,
}

/// Split and encoding with the predicted cost per batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The split.
    pub split: Split,
    /// The encoding on the link.
    pub encoding: Encoding,
    /// Seconds per batch on each tier.
    pub stages: Stages,
    /// Core-seconds per batch.
    pub work: Work,
    /// Bytes per sample on the link.
    pub bytes_per_sample: f64,
}

impl Candidate {
    /// Predicts the time of the job with this candidate.
    pub(crate) fn predict(&self, workload: &Workload) -> JobPrediction {
        self.predict_in(workload, &Scenario::MEASURED)
    }

    /// Returns true if both candidates have the same split and encoding.
    pub(crate) fn is_same_way(&self, other: &Self) -> bool {
        self.split == other.split && self.encoding == other.encoding
    }

    /// [`Candidate::predict`] for the given scenario.
    pub(crate) fn predict_in(&self, workload: &Workload, scenario: &Scenario) -> JobPrediction {
        workload
            .with_encoding(self.encoding)
            .predict(&self.stages, scenario)
    }

    /// Returns the usage of an epoch in the first pass. If there is no feature cache, this is the usage of
    /// any epoch.
    pub(crate) fn first_epoch(&self, workload: &Workload, prediction: &JobPrediction) -> Usage {
        let workload = workload.with_encoding(self.encoding);
        let [first, _] = workload.passes();
        self.epoch(&workload, first, prediction.iteration_seconds)
    }

    /// Returns the usage of an epoch with cached features, or `None` if the job has no such epoch.
    pub(crate) fn later_epoch(&self, workload: &Workload, prediction: &JobPrediction) -> Option<Usage> {
        let workload = workload.with_encoding(self.encoding);
        let [_, later] = workload.passes();
        (later.iterations > 0).then(|| self.epoch(&workload, later, prediction.later_seconds))
    }

    /// Returns the usage of the whole job.
    pub(crate) fn job(&self, workload: &Workload, prediction: &JobPrediction) -> Usage {
        self.job_in(workload, prediction, &Scenario::MEASURED)
    }

    /// The minimized value: either the duration of the job in seconds or the cost.
    pub(crate) fn objective(&self, workload: &Workload) -> f64 {
        self.objective_in(workload, &Scenario::MEASURED)
    }

    /// [`Candidate::objective`] for the given scenario.
    pub(crate) fn objective_in(&self, workload: &Workload, scenario: &Scenario) -> f64 {
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
        let pass = FetchPass {
            iterations: 1,
            ..first
        };
        workload.minimized(&self.usage(&traveling, steady, &[pass], &Scenario::MEASURED))
    }

    /// Returns the usage of an epoch with iterations like those of `pass`.
    fn epoch(&self, workload: &Workload, pass: FetchPass, iteration_seconds: f64) -> Usage {
        let pass = FetchPass {
            iterations: workload.epoch_iterations,
            ..pass
        };
        let seconds = iteration_seconds * workload.epoch_iterations as f64;
        self.usage(workload, seconds, &[pass], &Scenario::MEASURED)
    }

    fn job_in(&self, workload: &Workload, prediction: &JobPrediction, scenario: &Scenario) -> Usage {
        let workload = workload.with_encoding(self.encoding);
        self.usage(&workload, prediction.total_seconds, &workload.passes(), scenario)
    }

    /// Returns the usage of the iterations in `passes`, given the total duration. If the last batch of an
    /// epoch is smaller, it is counted accordingly.
    fn usage(&self, workload: &Workload, seconds: f64, passes: &[FetchPass], scenario: &Scenario) -> Usage {
        let batch = workload.batch as f64;
        let full = workload.epoch_samples / (batch * workload.epoch_iterations.max(1) as f64);
        let mut usage = Usage {
            seconds,
            host_core_seconds: 0.0,
            trainer_core_seconds: 0.0,
            bytes: 0.0,
            cost: None,
        };
        for pass in passes {
            let batches = pass.iterations as f64 * full;
            let work = self.work.fetching(pass.fetched);
            usage.host_core_seconds += batches * work.host_core_seconds * scenario.host;
            usage.trainer_core_seconds += batches * work.trainer_core_seconds * scenario.trainer;
            usage.bytes += batches * pass.fetched * batch * self.bytes_per_sample;
        }
        usage.cost = workload.cost.cost(&usage, workload.shared_cores);
        usage
    }
}

/// Candidate with a prediction for the job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ranked {
    pub(crate) candidate: Candidate,
    pub(crate) prediction: JobPrediction,
}
