use serde::Serialize;

/// Seconds per batch on each tier, assuming that the tier is otherwise idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stages {
    /// Reading and, depending on the split, decoding, the prefix and encoding on the hosts. Waiting for reads
    /// overlaps with the other steps. On a GPU, the prefix also overlaps with decoding and encoding.
    pub host_seconds: f64,
    /// Transfer of the batch.
    pub link_seconds: f64,
    /// Decoding, the middle and the training step on the trainer. On a GPU, decoding overlaps with the others.
    pub trainer_seconds: f64,
    /// The training step, which is included in `trainer_seconds`. A batch of cached features only needs this
    /// step.
    pub step_seconds: f64,
    /// Upload that is still required for this split, once per job. The frozen layers are already uploaded
    /// when the split is chosen, and the plan reports the duration separately.
    pub upload_seconds: f64,
}

impl Stages {
    /// Returns the times for a batch if only the fraction `share` is fetched and the rest is cached.
    pub(crate) fn fetching(&self, share: f64) -> Self {
        let step = self.step_seconds.min(self.trainer_seconds);
        Self {
            host_seconds: self.host_seconds * share,
            link_seconds: self.link_seconds * share,
            trainer_seconds: self.trainer_seconds * share + step * (1.0 - share),
            ..*self
        }
    }
}
