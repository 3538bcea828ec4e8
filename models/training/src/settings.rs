use crate::range::{above_zero, fraction, held, not_negative};
use crate::{BatchNorm, Dropout, Loss, TrainingError};
use std::collections::{BTreeMap, BTreeSet};

/// Optimizer of a step. Formulas, initial state and the order of operations follow PyTorch. Learning rates
/// are inputs of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent (`torch.optim.SGD`): `d = g + weight_decay·w`, `v = momentum·v + d`, `w =
    /// w - rate·v`.
    Sgd {
        /// Momentum from 0 (off) to below 1.
        momentum: f64,
        /// Enables Nesterov momentum, `w = w - rate·(d + momentum·v)`, which needs a momentum above 0.
        nesterov: bool,
        /// Weight decay, 0 (off) or more.
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay and bias correction (`torch.optim.AdamW`).
    AdamW {
        /// Decay of the mean of gradients, 0 to below 1, usually 0.9.
        beta1: f64,
        /// Decay of the mean of squared gradients, 0 to below 1, usually 0.999.
        beta2: f64,
        /// Added to the denominator, above 0; usually 1e-8.
        epsilon: f64,
        /// Weight decay, 0 (off) or more; usually 0.01.
        weight_decay: f64,
    },
}

impl Optimizer {
    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// Returns [`TrainingError::Setting`] for the first setting out of range.
    pub fn check(&self) -> Result<(), TrainingError> {
        match *self {
            Self::Sgd {
                momentum,
                nesterov,
                weight_decay,
            } => {
                fraction("momentum", momentum)?;
                held(
                    "momentum",
                    momentum,
                    !nesterov || momentum > 0.0,
                    "above 0 with Nesterov momentum",
                )?;
                not_negative("weight_decay", weight_decay)
            }
            Self::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                above_zero("epsilon", epsilon)?;
                not_negative("weight_decay", weight_decay)
            }
        }
    }
}

/// Settings of a training step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepSettings {
    /// Optimizer and its settings, except for the learning rate, which is an input of each step.
    pub optimizer: Optimizer,
    /// Loss to minimize.
    pub loss: Loss,
    /// Learning rate factors by weight name in the suffix, 1 by default.
    pub rate_factors: BTreeMap<String, f64>,
    /// Numbers of step counters by weight name in the suffix, for weights that joined the training later than
    /// others. Weights with the same number share a step counter of AdamW. Weights have the number 0 by
    /// default.
    pub step_counters: BTreeMap<String, u32>,
    /// Maximum total norm of the gradients (`torch.nn.utils.clip_grad_norm_`). `None` disables clipping.
    pub clip_norm: Option<f64>,
    /// True if several batches or [micro-batches](crate::CpuSteps) make a single update. A step then adds
    /// gradients to the state, and [`TrainingGraph::update`](crate::TrainingGraph::update) performs the
    /// update.
    pub accumulates: bool,
    /// True to keep an exponential moving average of the weights.
    pub averages: bool,
    /// Treatment of BatchNormalization.
    pub batch_norm: BatchNorm,
    /// Tensors with dropout during training.
    pub dropout: Vec<Dropout>,
    /// Weights of 3 x 3 convolutions to compute with Winograd's algorithm. [`CpuSteps`](crate::CpuSteps)
    /// selects the weights for which this is faster. Steps with the same state need the same selection,
    /// because it determines the layout of the slots.
    pub winograd: BTreeSet<String>,
}

impl From<Optimizer> for StepSettings {
    /// Cross-entropy with this optimizer and defaults for all other settings.
    fn from(optimizer: Optimizer) -> Self {
        Self {
            optimizer,
            loss: Loss::default(),
            rate_factors: BTreeMap::new(),
            step_counters: BTreeMap::new(),
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
    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// Returns [`TrainingError::Setting`] for the first setting out of range.
    pub fn check(&self) -> Result<(), TrainingError> {
        self.optimizer.check()?;
        self.loss.check()?;
        self.dropout.iter().try_for_each(Dropout::check)?;
        for factor in self.rate_factors.values() {
            not_negative("the learning rate factor", *factor)?;
        }
        self.clip_norm
            .map_or(Ok(()), |norm| above_zero("the clipping norm", norm))
    }
}
