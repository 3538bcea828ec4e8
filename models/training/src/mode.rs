use crate::TrainingError;
use crate::settings::fraction;

/// What becomes of the statistics and the affine part of BatchNormalization. Where an exporter folded it into the convolution before, none
/// of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BatchNorm {
    /// The stored statistics normalise and stay as they are; scale and bias are trained.
    #[default]
    Stored,
    /// All of it stays as it is.
    Frozen,
    /// Those of the batch normalise, and the stored ones move towards them by the momentum in the model, as in PyTorch's training mode;
    /// scale and bias are trained. Where a batch has one value a channel, the stored ones normalise.
    Updated,
}

/// Dropout at a tensor: each element is zero with probability `ratio`, and the others are scaled by `1 / (1 - ratio)`
/// (`torch.nn.Dropout`). What is drawn goes on from step to step of an engine session, and is the same in each session.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    /// The tensor's name in the suffix: its input, or what a node gives. Whoever reads it reads what is left.
    pub tensor: String,
    /// At least 0 and below 1.
    pub ratio: f64,
    /// Seeds what is drawn.
    pub seed: u64,
}

impl Dropout {
    pub(crate) fn check(&self) -> Result<(), TrainingError> {
        fraction("the share of elements that is dropped", self.ratio)
    }
}
