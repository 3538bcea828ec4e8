use super::scenario::Scenario;
use super::{Prediction, Stages, Work, Workload};
use frostline_wire::{Encoding, Split};

/// A usable split with the possible encodings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsableSplit {
    pub(crate) split: Split,
    /// Possible encodings, with the exact encoding first.
    pub(crate) encodings: Vec<Encoding>,
    /// Bytes per sample in the first encoding, before compression. For `none` this is the mean object size.
    pub(crate) bytes_per_sample: u64,
}

/// Split and encoding with the predicted cost per batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    pub(crate) stages: Stages,
    pub(crate) work: Work,
    /// Bytes per sample on the link.
    pub(crate) bytes_per_sample: f64,
}

impl Candidate {
    /// Predicts the time of the job with this candidate.
    pub(crate) fn predict(&self, workload: &Workload) -> Prediction {
        self.predict_in(workload, &Scenario::MEASURED)
    }

    /// Returns true if both candidates have the same split and encoding.
    pub(crate) fn is_same_way(&self, other: &Self) -> bool {
        self.split == other.split && self.encoding == other.encoding
    }

    /// [`Candidate::predict`] for the given scenario.
    pub(super) fn predict_in(&self, workload: &Workload, scenario: &Scenario) -> Prediction {
        workload
            .with_encoding(self.encoding)
            .predict_in(&self.stages, scenario)
    }
}

/// Candidate with a prediction for the job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ranked {
    pub(crate) candidate: Candidate,
    pub(crate) prediction: Prediction,
}
