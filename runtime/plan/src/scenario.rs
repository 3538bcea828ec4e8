//! Deviations of the tiers from the measurements.

use crate::stages::Stages;

/// Time factors per tier and the non-overlapping fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) host: f64,
    pub(crate) link: f64,
    pub(crate) trainer: f64,
    /// Fraction of the second slowest tier's time that does not overlap with the slowest tier and is added
    /// instead, for example because the tiers share cores or because transfers alternate with computation.
    pub(crate) not_overlapping: f64,
}

impl Scenario {
    /// All tiers are as measured and overlap completely.
    pub(crate) const MEASURED: Self = Self {
        host: 1.0,
        link: 1.0,
        trainer: 1.0,
        not_overlapping: 0.0,
    };

    /// Returns the times of `stages` in this scenario.
    pub(crate) fn stages(&self, stages: &Stages) -> Stages {
        Stages {
            host_seconds: stages.host_seconds * self.host,
            link_seconds: stages.link_seconds * self.link,
            trainer_seconds: stages.trainer_seconds * self.trainer,
            step_seconds: stages.step_seconds * self.trainer,
            upload_seconds: stages.upload_seconds * self.link,
        }
    }
}
