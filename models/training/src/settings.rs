use crate::range::{above_zero, not_negative};
use crate::{BatchNorm, Dropout, Loss, Optimizer, TrainingError};
use std::collections::{BTreeMap, BTreeSet};

/// How a step goes from activations and targets to new weights.
#[derive(Debug, Clone, PartialEq)]
pub struct StepSettings {
    /// How gradients become new weights.
    pub optimizer: Optimizer,
    /// What is minimized.
    pub loss: Loss,
    /// What the learning rate of a weight is multiplied by, by the weight's name in the suffix; 1 for those not named.
    pub rates: BTreeMap<String, f64>,
    /// Weights that are trained since later than others, by their name in the suffix: those of one number count AdamW's steps for
    /// themselves, and those not named have the number 0.
    pub joined: BTreeMap<String, u32>,
    /// The norm of all gradients together is cut down to this, as `torch.nn.utils.clip_grad_norm_` does; `None` leaves it.
    pub clip_norm: Option<f64>,
    /// Whether gradients of several batches, or of [micro-batches](crate::CpuSteps), make one update: a step adds its own to the state, and
    /// [`TrainingGraph::update`](crate::TrainingGraph::update) makes the update of all of them.
    pub accumulates: bool,
    /// Whether an exponential moving average of the weights is kept beside them.
    pub averages: bool,
    /// What becomes of BatchNormalization.
    pub batch_norm: BatchNorm,
    /// Where elements are dropped at random while training.
    pub dropout: Vec<Dropout>,
    /// Weights of 3 x 3 convolutions that take fewer operations in Winograd's way, where [that is faster](crate::CpuSteps). Steps
    /// of one state must agree in it: slots of these weights lie otherwise.
    pub winograd: BTreeSet<String>,
}

impl From<Optimizer> for StepSettings {
    /// Cross-entropy with this optimizer, and nothing else.
    fn from(optimizer: Optimizer) -> Self {
        Self {
            optimizer,
            loss: Loss::default(),
            rates: BTreeMap::new(),
            joined: BTreeMap::new(),
            clip_norm: None,
            accumulates: false,
            averages: false,
            batch_norm: BatchNorm::default(),
            dropout: Vec::new(),
            winograd: BTreeSet::new(),
        }
    }
}

impl From<&Optimizer> for StepSettings {
    fn from(optimizer: &Optimizer) -> Self {
        (*optimizer).into()
    }
}

impl From<&Self> for StepSettings {
    fn from(settings: &Self) -> Self {
        settings.clone()
    }
}

impl StepSettings {
    /// Refuses settings outside their ranges.
    ///
    /// # Errors
    /// [`TrainingError::Setting`] naming the first such setting.
    pub fn check(&self) -> Result<(), TrainingError> {
        self.optimizer.check()?;
        self.loss.check()?;
        self.dropout.iter().try_for_each(Dropout::check)?;
        for factor in self.rates.values() {
            not_negative("a weight's part of the learning rate", *factor)?;
        }
        self.clip_norm.map_or(Ok(()), |norm| {
            above_zero("the norm that gradients are cut down to", norm)
        })
    }
}
