//! How a network is trained: all that a paper's table of hyper-parameters would say. Names and formulas are torchvision's, timm's or Hugging
//! Face's, so that a recipe can be taken over as it is.

mod feature_augment;
mod mix;
mod rates;
mod scales;
mod schedule;
mod steps;
mod varied;
mod views;

pub use feature_augment::FeatureAugment;
pub(crate) use mix::Mix;
pub use rates::LearningRates;
pub use schedule::Scheduler;
pub(crate) use steps::{StepTerms, Steps};
pub(crate) use varied::Varied;
pub(crate) use views::Views;

use crate::TrainerError;
use crate::job::at_least_one;
use frostline_tensor::Augmentation;
use frostline_training::{BatchNorm, Loss, Optimizer, StepSettings};
use serde::{Deserialize, Serialize};

/// See the module. What is left out has the default of [`Recipe::default`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// Passes over the training samples.
    pub epochs: u32,
    /// Samples of a batch.
    pub batch: usize,
    /// Batches whose gradients make one update (Hugging Face's name).
    pub gradient_accumulation_steps: usize,
    /// The optimiser.
    pub optimizer: OptimizerName,
    /// What is minimised, which says as well what the labels are.
    pub loss: LossName,
    /// Learning rates; `None` is 0.003 for SGD, with the squared error 0.0003, and 0.001 for AdamW.
    pub lr: Option<LearningRates>,
    /// Of SGD, 0 up to, but not including, 1.
    pub momentum: f64,
    /// Nesterov's momentum, for SGD.
    pub nesterov: bool,
    /// `None` is 0 for SGD and 0.01 for AdamW.
    pub weight_decay: Option<f64>,
    /// How the learning rate goes from the first update to the last.
    pub lr_scheduler: Scheduler,
    /// The share of updates in which the rate rises from 0, 0 up to, but not including, 1 (Hugging Face's name).
    pub warmup_ratio: f64,
    /// Epochs between two cuts of the scheduler `step`.
    pub lr_step_size: u32,
    /// What the scheduler `step` multiplies the rate by.
    pub lr_gamma: f64,
    /// What becomes of BatchNormalization in the layers that are trained.
    pub batch_norm: BatchNorm,
    /// What the norm of all gradients is cut down to; `None` leaves them.
    pub clip_grad_norm: Option<f64>,
    /// What the average of weights keeps of itself at an update, 0 up to, but not including, 1 (timm's name); `None` keeps no average. Where there is
    /// one, it is validated and written.
    pub model_ema_decay: Option<f64>,
    /// Share of what the classifier's layers read that is dropped at random in a step, 0 up to, but not including, 1: of the features in front of
    /// the head (`drop_rate` of timm's models), and between the linear layers of a classifier that has several, as torchvision's VGG and
    /// MobileNetV3 have it. Of those only what is trained.
    pub dropout: f64,
    /// Whether the features of a linear classifier are standardised over the training samples (scikit-learn's `StandardScaler`).
    pub standardize: bool,
    /// Part of the target that is spread over all classes, 0 up to, but not including, 1.
    pub label_smoothing: f64,
    /// What each class counts in the loss.
    pub class_weights: ClassWeights,
    /// How an epoch's samples are drawn.
    pub sampling: Sampling,
    /// Mixup's alpha (torchvision's name); 0 is off. Rows are mixed at the freeze cut.
    pub mixup_alpha: f64,
    /// CutMix's alpha (torchvision's name); 0 is off. Maps are mixed at the freeze cut; where both are on, each batch has one of them, by a
    /// coin.
    pub cutmix_alpha: f64,
    /// How training rows are varied at the freeze cut.
    #[serde(skip_serializing_if = "FeatureAugment::is_none")]
    pub feature_augment: FeatureAugment,
    /// How training samples are varied, where they are decoded.
    #[serde(flatten)]
    pub augmentation: Augmentation,
    /// After how many epochs their variations come again; `None` draws anew in every epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub views: Option<u32>,
    /// Seeds the shuffle, the head's weights, the choice of validation samples, mixing and augmentation.
    pub seed: u64,
}

/// The name of an optimiser.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OptimizerName {
    /// Stochastic gradient descent with momentum.
    #[default]
    Sgd,
    /// Adam with decoupled weight decay; betas 0.9 and 0.999, epsilon 1e-8.
    Adamw,
}

/// The name of a loss.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum LossName {
    /// Softmax cross-entropy, for one class a sample (`torch.nn.CrossEntropyLoss`).
    #[default]
    CrossEntropy,
    /// Binary cross-entropy of each output, for several labels a sample (`torch.nn.BCEWithLogitsLoss`); of classes, each against all others.
    Bce,
    /// Mean squared error, for numbers (`torch.nn.MSELoss`).
    Mse,
}

/// What each class counts in the loss.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ClassWeights {
    /// All alike.
    #[default]
    None,
    /// Samples over classes times the samples of the class (scikit-learn's `balanced`). With binary cross-entropy a yes counts as much as there
    /// are a no for each (PyTorch's advice for `pos_weight`).
    Balanced,
}

/// How an epoch's samples are drawn.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Sampling {
    /// Each once, shuffled.
    #[default]
    Shuffle,
    /// As many, every class as often as any other, with replacement (`torch.utils.data.WeightedRandomSampler` over a class' share).
    Balanced,
}

impl Default for Recipe {
    /// At rate 0.003 and momentum 0.9 a fresh head on SqueezeNet's features did best over seeds (`tests/bench/peers/linear_probe.py`); 20
    /// epochs of batches of 64 reach its plateau. A cosine with a short warm-up, as constant rates lost eight points of accuracy between two
    /// epochs on real photos.
    fn default() -> Self {
        Self {
            epochs: 20,
            batch: 64,
            gradient_accumulation_steps: 1,
            optimizer: OptimizerName::Sgd,
            loss: LossName::CrossEntropy,
            lr: None,
            momentum: 0.9,
            nesterov: false,
            weight_decay: None,
            lr_scheduler: Scheduler::Cosine,
            warmup_ratio: 0.05,
            lr_step_size: 30,
            lr_gamma: 0.1,
            batch_norm: BatchNorm::Stored,
            clip_grad_norm: None,
            model_ema_decay: None,
            dropout: 0.0,
            standardize: false,
            label_smoothing: 0.0,
            class_weights: ClassWeights::None,
            sampling: Sampling::Shuffle,
            mixup_alpha: 0.0,
            cutmix_alpha: 0.0,
            feature_augment: FeatureAugment::default(),
            augmentation: Augmentation::default(),
            views: None,
            seed: 0,
        }
    }
}

impl Recipe {
    /// With everything said that is left to defaults elsewhere.
    #[must_use]
    pub fn resolved(&self) -> Self {
        Self {
            lr: Some(self.rates()),
            weight_decay: Some(self.decay()),
            ..self.clone()
        }
    }

    pub(crate) fn rates(&self) -> LearningRates {
        let usual = match (self.optimizer, self.loss) {
            // Its curvature is twice the square of the features: with 512 of about 1 and momentum 0.9, rates above 0.004 diverge.
            (OptimizerName::Sgd, LossName::Mse) => 0.0003,
            (OptimizerName::Sgd, _) => 0.003,
            (OptimizerName::Adamw, _) => 0.001,
        };
        self.lr.clone().unwrap_or(LearningRates::One(usual))
    }

    fn decay(&self) -> f64 {
        self.weight_decay.unwrap_or(match self.optimizer {
            OptimizerName::Sgd => 0.0,
            OptimizerName::Adamw => 0.01,
        })
    }

    /// The optimiser with its settings.
    pub(crate) fn optimizer(&self) -> Optimizer {
        let weight_decay = self.decay();
        match self.optimizer {
            OptimizerName::Sgd => Optimizer::Sgd {
                momentum: self.momentum,
                nesterov: self.nesterov,
                weight_decay,
            },
            OptimizerName::Adamw => Optimizer::AdamW {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay,
            },
        }
    }

    /// How training samples look, epoch by epoch.
    pub(crate) fn views(&self) -> Views {
        Views {
            augmentation: self.augmentation,
            seed: self.seed,
            different: self.views,
        }
    }

    /// Whether targets are shares of classes.
    pub(crate) fn mixes(&self) -> bool {
        self.mixup_alpha > 0.0 || self.cutmix_alpha > 0.0
    }

    /// A step's settings but for what depends on the network and the data.
    pub(crate) fn settings(&self) -> StepSettings {
        StepSettings {
            loss: self.loss(),
            batch_norm: self.batch_norm,
            clip_norm: self.clip_grad_norm,
            accumulates: self.gradient_accumulation_steps > 1,
            averages: self.model_ema_decay.is_some(),
            ..self.optimizer().into()
        }
    }

    fn loss(&self) -> Loss {
        match self.loss {
            LossName::CrossEntropy => Loss::CrossEntropy {
                label_smoothing: self.label_smoothing,
                class_weights: None,
                mixed: self.mixes(),
            },
            LossName::Bce => Loss::BinaryCrossEntropy {
                positive_weights: None,
            },
            LossName::Mse => Loss::MeanSquared,
        }
    }

    /// Refuses what has no sense with the loss.
    fn check_loss(&self) -> Result<(), TrainerError> {
        let numbers = self.loss == LossName::Mse;
        let of_classes = "numbers have no classes; leave it out, or take another loss";
        held(
            "label_smoothing",
            self.label_smoothing,
            self.loss == LossName::CrossEntropy || self.label_smoothing == 0.0,
            "only cross-entropy smooths labels; leave it out",
        )?;
        held(
            "cutmix_alpha",
            self.cutmix_alpha,
            !numbers || self.cutmix_alpha == 0.0,
            "a part of a picture has no part of its number; take mixup_alpha",
        )?;
        for (what, balanced) in [
            ("class_weights", self.class_weights == ClassWeights::Balanced),
            ("sampling", self.sampling == Sampling::Balanced),
        ] {
            if numbers && balanced {
                return Err(TrainerError::Setting {
                    what,
                    value: "balanced".to_owned(),
                    must: of_classes,
                });
            }
        }
        Ok(())
    }

    /// Refuses what no recipe can be.
    ///
    /// # Errors
    /// [`TrainerError::Setting`], or [`TrainerError::Unfollowable`] for what a step cannot be.
    pub fn check(&self) -> Result<(), TrainerError> {
        at_least_one("the number of epochs", self.epochs as usize)?;
        at_least_one("the batch size", self.batch)?;
        at_least_one("gradient_accumulation_steps", self.gradient_accumulation_steps)?;
        at_least_one("lr_step_size", self.lr_step_size as usize)?;
        at_least_one("views", self.views.unwrap_or(1) as usize)?;
        self.augmentation.check()?;
        self.feature_augment.check()?;
        self.rates().check()?;
        let fraction = (0.0..1.0, "it must be at least 0 and below 1");
        held(
            "warmup_ratio",
            self.warmup_ratio,
            fraction.0.contains(&self.warmup_ratio),
            fraction.1,
        )?;
        held(
            "dropout",
            self.dropout,
            fraction.0.contains(&self.dropout),
            fraction.1,
        )?;
        if let Some(decay) = self.model_ema_decay {
            held("model_ema_decay", decay, fraction.0.contains(&decay), fraction.1)?;
        }
        let positive = |value: f64| value > 0.0 && value.is_finite();
        held(
            "lr_gamma",
            self.lr_gamma,
            positive(self.lr_gamma),
            "it must be above 0",
        )?;
        for (what, alpha) in [
            ("mixup_alpha", self.mixup_alpha),
            ("cutmix_alpha", self.cutmix_alpha),
        ] {
            held(
                what,
                alpha,
                alpha == 0.0 || positive(alpha),
                "it must be at least 0",
            )?;
        }
        self.check_loss()?;
        self.settings()
            .check()
            .map_err(|source| TrainerError::Unfollowable { source })
    }
}

/// What each class counts where they are balanced, from the samples of each.
pub(crate) fn balanced(counts: &[usize]) -> Vec<f64> {
    let total: usize = counts.iter().sum();
    let even = total as f64 / counts.len().max(1) as f64;
    counts.iter().map(|count| even / (*count).max(1) as f64).collect()
}

/// What a yes to each output counts where it is to count as much as there are a no for each: from how many of `all` samples say yes.
pub(crate) fn positive(yes: &[usize], all: usize) -> Vec<f64> {
    let weight = |yes: &usize| all.saturating_sub(*yes).max(1) as f64 / (*yes).max(1) as f64;
    yes.iter().map(weight).collect()
}

pub(super) fn held(
    what: &'static str,
    value: f64,
    holds: bool,
    must: &'static str,
) -> Result<(), TrainerError> {
    if holds {
        return Ok(());
    }
    Err(TrainerError::Setting {
        what,
        value: value.to_string(),
        must,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_classes_count_alike_together() {
        let weights = balanced(&[10, 30, 20]);
        let together: Vec<f64> = weights
            .iter()
            .zip([10.0, 30.0, 20.0])
            .map(|(weight, count)| weight * count)
            .collect();
        assert!(
            together.iter().all(|sum| (sum - 20.0).abs() < 1e-12),
            "{together:?}"
        );
    }

    #[test]
    fn a_yes_counts_as_much_as_there_are_a_no_for_each() {
        assert_eq!(positive(&[25, 50, 0, 100], 100), [3.0, 1.0, 100.0, 0.01]);
    }

    #[test]
    fn what_no_recipe_can_be_is_refused() {
        let bad: [fn(&mut Recipe); 18] = [
            |recipe| recipe.views = Some(0),
            |recipe| recipe.augmentation.hflip = 2.0,
            |recipe| recipe.feature_augment.noise = -0.1,
            |recipe| recipe.dropout = 1.0,
            |recipe| recipe.epochs = 0,
            |recipe| recipe.gradient_accumulation_steps = 0,
            |recipe| recipe.lr = Some(LearningRates::One(f64::NAN)),
            |recipe| recipe.warmup_ratio = 1.0,
            |recipe| recipe.model_ema_decay = Some(1.0),
            |recipe| recipe.lr_gamma = 0.0,
            |recipe| recipe.mixup_alpha = -1.0,
            |recipe| recipe.label_smoothing = 1.0,
            |recipe| (recipe.momentum, recipe.nesterov) = (0.0, true),
            |recipe| (recipe.loss, recipe.class_weights) = (LossName::Mse, ClassWeights::Balanced),
            |recipe| (recipe.loss, recipe.sampling) = (LossName::Mse, Sampling::Balanced),
            |recipe| (recipe.loss, recipe.label_smoothing) = (LossName::Mse, 0.1),
            |recipe| (recipe.loss, recipe.cutmix_alpha) = (LossName::Mse, 1.0),
            |recipe| (recipe.loss, recipe.label_smoothing) = (LossName::Bce, 0.1),
        ];
        for change in bad {
            let mut recipe = Recipe::default();
            recipe.check().unwrap();
            change(&mut recipe);
            assert!(recipe.check().is_err(), "{recipe:?}");
        }
    }
}
