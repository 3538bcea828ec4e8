//! How a network is trained: all that a paper's table of hyper-parameters would say. Names and formulas are torchvision's, timm's or Hugging
//! Face's, so that a recipe can be taken over as it is.

#[cfg(feature = "flags")]
use crate::augment::{color_jitter, rand_augment, random_erasing, random_resized_crop};
#[cfg(feature = "flags")]
use crate::flags::{named, positive};
use crate::setting::settings;
use crate::{LearningRates, SettingError};
use frostline_tensor::{Augmentation, ColorJitter, RandAugment, RandomErasing, RandomResizedCrop};
use serde::{Deserialize, Serialize};

// At rate 0.003 and momentum 0.9 a fresh head on SqueezeNet's features did best over seeds; 20 epochs of batches of 64 reach its
// plateau. A cosine with a short warm-up, as constant rates lost eight points of accuracy between two epochs on real photos.
settings! {
    /// How a network is trained. A recipe's file has the same names.
    #[command(next_help_heading = "Recipe")]
    Recipe {
        /// Passes over the training images
        Identity epochs: u32 = 20
            => arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..));
        /// Images per batch
        Identity batch: usize = 64 => arg(long, value_name = "N", value_parser = positive);
        /// Batches whose gradients make one update
        Identity gradient_accumulation_steps: usize = 1 => arg(long, value_name = "N", value_parser = positive);
        /// The optimizer
        Identity optimizer: OptimizerName = OptimizerName::Sgd => arg(long, value_parser = named::<OptimizerName>());
        /// What is minimized: cross-entropy for one class an image, bce for several labels, mse for numbers
        Identity loss: LossName = LossName::CrossEntropy => arg(long, value_parser = named::<LossName>());
        /// Momentum, for sgd, from 0 to below 1
        Identity momentum: f64 = 0.9 => arg(long);
        /// Nesterov's momentum, for sgd
        Identity nesterov: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Weight decay; by default 0 for sgd and 0.01 for adamw
        Identity weight_decay: Option<f64> = None => arg(long);
        /// How the learning rate goes from the first update to the last
        Identity lr_scheduler: Scheduler = Scheduler::Cosine => arg(long, value_parser = named::<Scheduler>());
        /// Share of updates in which the rate rises to its largest
        Identity warmup_ratio: f64 = 0.05 => arg(long, value_name = "SHARE");
        /// Epochs between two cuts of the rate, for the scheduler step
        Identity lr_step_size: u32 = 30 => arg(long, value_name = "EPOCHS");
        /// What the scheduler step multiplies the rate by
        Identity lr_gamma: f64 = 0.1 => arg(long, value_name = "FACTOR");
        /// What becomes of BatchNormalization in the layers that are trained: stored normalizes by the stored statistics, frozen keeps scale and
        /// bias as well, updated is PyTorch's training mode
        Identity batch_norm: BatchNorm = BatchNorm::Stored => arg(long, value_parser = named::<BatchNorm>());
        /// Cut the norm of all gradients down to this
        Identity clip_grad_norm: Option<f64> = None => arg(long, value_name = "NORM");
        /// Keep an average of the weights, which keeps this part of itself at an update, and validate and write that
        Identity model_ema_decay: Option<f64> = None => arg(long, value_name = "DECAY");
        /// Share of what is dropped at random in a step in front of the head, and between the classifier's linear layers where it has several
        Identity dropout: f64 = 0.0 => arg(long, value_name = "SHARE");
        /// Standardize the features of a linear classifier over the training images, in one pass before the first epoch; the tuned model takes
        /// the same input as without
        Identity standardize: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Part of the target that is spread over all classes
        Identity label_smoothing: f64 = 0.0 => arg(long, value_name = "SHARE");
        /// What each class counts in the loss: balanced counts rare ones more
        Identity class_weights: ClassWeights = ClassWeights::None => arg(long, value_parser = named::<ClassWeights>());
        /// How an epoch's images are drawn: balanced takes every class as often
        Identity sampling: Sampling = Sampling::Shuffle => arg(long, value_parser = named::<Sampling>());
        /// Mix images at the freeze cut by Mixup with this alpha; 0 is off
        Identity mixup_alpha: f64 = 0.0 => arg(long, value_name = "ALPHA");
        /// Mix images at the freeze cut by CutMix with this alpha, where that has maps; 0 is off. Where both are on, each batch has one of them
        Identity cutmix_alpha: f64 = 0.0 => arg(long, value_name = "ALPHA");
        /// Mirror training images, with this probability; 0.5 where it stands alone
        Identity hflip: f64 = 0.0 => arg(long, value_name = "P", num_args = 0..=1, default_missing_value = "0.5");
        /// Vary training images in so many ways, which come again after as many epochs, instead of anew in each
        Identity views: Option<u32> = None
            => arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..));
        /// Seeds the shuffle, the new classifier's weights, the choice of validation images, mixing and what varies them
        Identity seed: u64 = 0 => arg(long);
        /// Learning rate, or one by group, as in head=0.1,rest=0.01 (also how weights' names begin); by default 0.003 for sgd (0.0003 with mse)
        /// and 0.001 for adamw
        Identity lr: Option<LearningRates> = None => arg(long, value_name = "RATE");
        /// Cut out and resize a random part of each training image, at least and at most so much of its area; 0.08,1 where it stands alone
        Identity random_resized_crop: Option<RandomResizedCrop> = None
            => arg(long, value_name = "MIN,MAX", num_args = 0..=1, default_missing_value = "0.08,1", value_parser = random_resized_crop);
        /// Do so many random operations of such a magnitude, 0 to 30, to each training image; 2,9 where it stands alone
        Identity rand_augment: Option<RandAugment> = None
            => arg(long, value_name = "OPS,MAGNITUDE", num_args = 0..=1, default_missing_value = "2,9", value_parser = rand_augment);
        /// Change the colors of training images by so much: one number for brightness, contrast and saturation, or one each; a fourth is the
        /// hue's, to 0.5
        Identity color_jitter: Option<ColorJitter> = None
            => arg(long, value_name = "X[,X,X[,HUE]]", value_parser = color_jitter);
        /// Paint over a random rectangle of training images, with this probability
        Identity random_erasing: Option<RandomErasing> = None
            => arg(long, value_name = "P", value_parser = random_erasing);
    }
}

/// Names of values, in one case for files and flags.
macro_rules! names {
    ($case:literal, $(#[doc = $about:literal])+ $name:ident { $( $(#[$meta:meta])+ $value:ident, )+ }) => {
        $(#[doc = $about])+
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
        )]
        #[serde(rename_all = $case)]
        #[strum(serialize_all = $case)]
        pub enum $name { $( $(#[$meta])+ $value, )+ }
    };
}

names! {
    "snake_case",
    /// The name of an optimizer.
    OptimizerName {
        /// Stochastic gradient descent with momentum.
        #[default]
        Sgd,
        /// Adam with decoupled weight decay; betas 0.9 and 0.999, epsilon 1e-8.
        Adamw,
    }
}

names! {
    "kebab-case",
    /// The name of a loss.
    LossName {
        /// Softmax cross-entropy, for one class a sample (`torch.nn.CrossEntropyLoss`).
        #[default]
        CrossEntropy,
        /// Binary cross-entropy of each output, for several labels a sample (`torch.nn.BCEWithLogitsLoss`); of classes, each against all others.
        Bce,
        /// Mean squared error, for numbers (`torch.nn.MSELoss`).
        Mse,
    }
}

names! {
    "kebab-case",
    /// How the learning rate goes.
    Scheduler {
        /// It stays (Hugging Face's `constant_with_warmup`).
        Constant,
        /// Half a cosine down to 0 (Hugging Face's `cosine`).
        #[default]
        Cosine,
        /// Multiplied by `lr_gamma` every `lr_step_size` epochs (`torch.optim.lr_scheduler.StepLR`).
        Step,
        /// Up along half a cosine from a 25th, down to a 250,000th (`torch.optim.lr_scheduler.OneCycleLR`, momentum left as it is).
        /// `warmup_ratio` is the share of updates in which it rises.
        OneCycle,
    }
}

names! {
    "snake_case",
    /// What becomes of `BatchNormalization` in the layers that are trained.
    BatchNorm {
        /// The stored statistics normalize and stay as they are; scale and bias are trained.
        #[default]
        Stored,
        /// All of it stays as it is.
        Frozen,
        /// Those of the batch normalize, and the stored ones follow, as in PyTorch's training mode.
        Updated,
    }
}

names! {
    "snake_case",
    /// What each class counts in the loss.
    ClassWeights {
        /// All alike.
        #[default]
        None,
        /// Samples over classes times the samples of the class (scikit-learn's `balanced`). With binary cross-entropy a yes counts as much as
        /// there are a no for each (PyTorch's advice for `pos_weight`).
        Balanced,
    }
}

names! {
    "snake_case",
    /// How an epoch's samples are drawn.
    Sampling {
        /// Each once, shuffled.
        #[default]
        Shuffle,
        /// As many, every class as often as any other, with replacement (`torch.utils.data.WeightedRandomSampler` over a class' share).
        Balanced,
    }
}

impl Recipe {
    /// With everything said that depends on other settings.
    #[must_use]
    pub fn resolved(&self) -> Self {
        Self {
            lr: Some(self.rates()),
            weight_decay: Some(self.decay()),
            ..self.clone()
        }
    }

    /// The learning rates, by default those that suit optimizer and loss.
    pub fn rates(&self) -> LearningRates {
        let usual = match (self.optimizer, self.loss) {
            // Its curvature is twice the square of the features: with 512 of about 1 and momentum 0.9, rates above 0.004 diverge.
            (OptimizerName::Sgd, LossName::Mse) => 0.0003,
            (OptimizerName::Sgd, _) => 0.003,
            (OptimizerName::Adamw, _) => 0.001,
        };
        self.lr.clone().unwrap_or(LearningRates::One(usual))
    }

    /// The weight decay, by default that which suits the optimizer.
    pub fn decay(&self) -> f64 {
        self.weight_decay.unwrap_or(match self.optimizer {
            OptimizerName::Sgd => 0.0,
            OptimizerName::Adamw => 0.01,
        })
    }

    /// How training images are varied.
    pub fn augmentation(&self) -> Augmentation {
        Augmentation {
            random_resized_crop: self.random_resized_crop,
            hflip: self.hflip,
            rand_augment: self.rand_augment,
            color_jitter: self.color_jitter,
            random_erasing: self.random_erasing,
        }
    }

    /// Whether targets are shares of classes.
    pub fn mixes(&self) -> bool {
        self.mixup_alpha > 0.0 || self.cutmix_alpha > 0.0
    }

    /// Refuses what no recipe can be.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn check(&self) -> Result<(), SettingError> {
        self.check_counts()?;
        self.augmentation().check().map_err(|error| SettingError {
            what: error.what,
            value: format!("{:?}", error.value),
            must: format!("it must be {}", error.must),
        })?;
        self.rates().check()?;
        self.check_shares()?;
        self.check_loss()
    }

    fn check_counts(&self) -> Result<(), SettingError> {
        let least = SettingError::at_least_one;
        least("the number of epochs", self.epochs as usize)?;
        least("the batch size", self.batch)?;
        least("gradient_accumulation_steps", self.gradient_accumulation_steps)?;
        least("lr_step_size", self.lr_step_size as usize)?;
        least("views", self.views.unwrap_or(1) as usize)
    }

    fn check_shares(&self) -> Result<(), SettingError> {
        let held = SettingError::unless;
        let shares = [
            ("warmup_ratio", self.warmup_ratio),
            ("dropout", self.dropout),
            ("model_ema_decay", self.model_ema_decay.unwrap_or_default()),
        ];
        for (what, share) in shares {
            let holds = (0.0..1.0).contains(&share);
            held(holds, what, &share, "it must be at least 0 and below 1")?;
        }
        let positive = |value: f64| value > 0.0 && value.is_finite();
        held(
            positive(self.lr_gamma),
            "lr_gamma",
            &self.lr_gamma,
            "it must be above 0",
        )?;
        for (what, alpha) in [
            ("mixup_alpha", self.mixup_alpha),
            ("cutmix_alpha", self.cutmix_alpha),
        ] {
            held(
                alpha == 0.0 || positive(alpha),
                what,
                &alpha,
                "it must be at least 0",
            )?;
        }
        Ok(())
    }

    /// Refuses what has no sense with the loss.
    fn check_loss(&self) -> Result<(), SettingError> {
        let held = SettingError::unless;
        let numbers = self.loss == LossName::Mse;
        held(
            self.loss == LossName::CrossEntropy || self.label_smoothing == 0.0,
            "label_smoothing",
            &self.label_smoothing,
            "only cross-entropy smooths labels; leave it out",
        )?;
        held(
            !numbers || self.cutmix_alpha == 0.0,
            "cutmix_alpha",
            &self.cutmix_alpha,
            "a part of a picture has no part of its number; take mixup_alpha",
        )?;
        for (what, balanced) in [
            ("class_weights", self.class_weights == ClassWeights::Balanced),
            ("sampling", self.sampling == Sampling::Balanced),
        ] {
            let must = "numbers have no classes; leave it out, or take another loss";
            held(!(numbers && balanced), what, &"balanced", must)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_recipe_can_be_is_refused() {
        let bad: [fn(&mut Recipe); 16] = [
            |recipe| recipe.views = Some(0),
            |recipe| recipe.hflip = 2.0,
            |recipe| recipe.dropout = 1.0,
            |recipe| recipe.epochs = 0,
            |recipe| recipe.gradient_accumulation_steps = 0,
            |recipe| recipe.lr = Some(LearningRates::One(f64::NAN)),
            |recipe| recipe.lr = Some("head=0,rest=0".parse().unwrap()),
            |recipe| recipe.warmup_ratio = 1.0,
            |recipe| recipe.model_ema_decay = Some(1.0),
            |recipe| recipe.lr_gamma = 0.0,
            |recipe| recipe.mixup_alpha = -1.0,
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

    #[test]
    fn what_is_printed_is_a_recipe_again() {
        let recipe = Recipe {
            lr: Some("head=0.1,rest=0.01".parse().unwrap()),
            color_jitter: Some(ColorJitter::default()),
            ..Recipe::default()
        };
        let text = toml::to_string(&recipe).unwrap();
        assert_eq!(toml::from_str::<Recipe>(&text).unwrap(), recipe, "{text}");
        let unknown = toml::from_str::<Recipe>("epoch = 7").unwrap_err().to_string();
        assert!(unknown.contains("epoch"), "{unknown}");
    }
}
