use super::files;
use crate::ReportError;
use serde::Deserialize;
use std::path::Path;

/// Maximum number of candidates.
const CANDIDATES: usize = 4096;

/// Contents of `plan.json`, as printed by `frostline plan --json`. Missing fields are empty or 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RecordedPlan {
    pub(crate) split: String,
    pub(crate) encoding: String,
    pub(crate) policy: String,
    pub(crate) iteration_seconds: f64,
    pub(crate) link_bytes_per_second: f64,
    pub(crate) candidates: Vec<RecordedCandidate>,
}

/// A candidate for the split, with predictions.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RecordedCandidate {
    pub(crate) split: String,
    pub(crate) encoding: String,
    pub(crate) iteration_seconds: f64,
    pub(crate) bottleneck: String,
    pub(crate) bytes_per_sample: f64,
    pub(crate) host_seconds: f64,
    pub(crate) link_seconds: f64,
    pub(crate) trainer_seconds: f64,
    pub(crate) total_seconds: f64,
}

impl RecordedPlan {
    pub(crate) fn read(file: &Path) -> Result<Option<Self>, ReportError> {
        let mut plan: Option<Self> = files::json(file)?;
        if let Some(plan) = &mut plan {
            plan.candidates.truncate(CANDIDATES);
        }
        Ok(plan)
    }

    /// Returns true if this candidate was chosen.
    pub(crate) fn chose(&self, candidate: &RecordedCandidate) -> bool {
        candidate.split == self.split && candidate.encoding == self.encoding
    }
}
