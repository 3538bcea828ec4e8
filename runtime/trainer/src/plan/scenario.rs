//! How tiers may turn out, against what was measured of them.

use super::stages::Stages;

/// Factors of the tiers' times, and what of them does not overlap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scenario {
    pub(super) host: f64,
    pub(super) link: f64,
    pub(super) trainer: f64,
    /// Share of the next slowest tier's time that adds to the slowest one's, as where cores are shared or a link takes turns with
    /// computing.
    pub(super) apart: f64,
}

impl Scenario {
    /// All is as it was measured, and overlaps.
    pub(super) const MEASURED: Self = Self {
        host: 1.0,
        link: 1.0,
        trainer: 1.0,
        apart: 0.0,
    };

    /// What `stages` are then.
    pub(super) fn stages(&self, stages: &Stages) -> Stages {
        Stages {
            host_seconds: stages.host_seconds * self.host,
            link_seconds: stages.link_seconds * self.link,
            trainer_seconds: stages.trainer_seconds * self.trainer,
            step_seconds: stages.step_seconds * self.trainer,
            upload_seconds: stages.upload_seconds * self.link,
        }
    }
}
