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
    /// Of these, the training step: all that a batch of kept rows takes.
    pub step_seconds: f64,
    /// Once per job: what has to be uploaded for this split and is not there yet. Frozen layers are there when a split is chosen; what
    /// they took is told beside the plan.
    pub upload_seconds: f64,
}

impl Stages {
    /// The same for a batch of which this share is fetched, and the rest is kept.
    pub(super) fn fetching(&self, share: f64) -> Self {
        let step = self.step_seconds.min(self.trainer_seconds);
        Self {
            host_seconds: self.host_seconds * share,
            link_seconds: self.link_seconds * share,
            trainer_seconds: self.trainer_seconds * share + step * (1.0 - share),
            ..*self
        }
    }
}
