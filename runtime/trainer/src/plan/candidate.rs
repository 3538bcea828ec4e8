use super::scenario::Scenario;
use super::{Prediction, Stages, Work, Workload};
use frostline_wire::{Encoding, Split};

/// A split that can be used, and how its rows may travel, the exact encoding first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsableSplit {
    /// The split.
    pub(crate) split: Split,
    /// Its encodings.
    pub(crate) encodings: Vec<Encoding>,
    /// Payload bytes of one sample in the first of them; for `none` the mean size of the objects.
    pub(crate) bytes_per_sample: u64,
}

/// A split that could be used, and what one batch takes there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    /// The split.
    pub(crate) split: Split,
    /// How its activations travel.
    pub(crate) encoding: Encoding,
    /// Seconds of one batch on each tier.
    pub(crate) stages: Stages,
    /// Core-seconds of one batch.
    pub(crate) work: Work,
    /// Bytes of one sample on the link.
    pub(crate) bytes_per_sample: f64,
}

impl Candidate {
    /// What the job takes with it.
    pub(crate) fn predict(&self, workload: &Workload) -> Prediction {
        self.predict_in(workload, &Scenario::MEASURED)
    }

    /// What it takes if tiers turn out so.
    pub(super) fn predict_in(&self, workload: &Workload, scenario: &Scenario) -> Prediction {
        workload
            .traveling(self.encoding)
            .predict_in(&self.stages, scenario)
    }
}

/// A candidate with its predicted time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ranked {
    /// The candidate.
    pub(crate) candidate: Candidate,
    /// What the job would take with it.
    pub(crate) prediction: Prediction,
}
