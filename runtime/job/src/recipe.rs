//! Training recipes: hyperparameters as in the tables of papers. Names and formulas match torchvision, timm
//! or Hugging Face, so published recipes can be used without conversion.

#[cfg(feature = "flags")]
use crate::augment::{color_jitter, rand_augment, random_erasing, random_resized_crop};
#[cfg(feature = "flags")]
use crate::flags::{named, positive};
use crate::setting::{names, settings};
use crate::{LearningRates, SettingError};
use frostline_tensor::{Augmentation, ColorJitter, RandAugment, RandomErasing, RandomResizedCrop};

// In tests with several seeds, rate 0.003 and momentum 0.9 gave the best results for a new head on SqueezeNet
// features. 20 epochs of batches of 64 are sufficient for convergence. The default is a cosine with a short
// warm-up, because with constant rates the accuracy on real photos varied by eight percentage points between
// epochs.
settings! {
    /// Training recipe. Recipe files use the same names.
    #[command(next_help_heading = "Recipe")]
    Recipe {
        /// Passes over the training images
        Identity epochs: u32 = 20
            => arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..));
        /// Images per batch
        Identity batch: usize = 64 => arg(long, value_name = "N", value_parser = positive);
        /// Number of batches per update. Gradients are accumulated
        Identity gradient_accumulation_steps: usize = 1 => arg(long, value_name = "N", value_parser = positive);
        /// The optimizer
        Identity optimizer: OptimizerName = OptimizerName::Sgd => arg(long, value_parser = named::<OptimizerName>());
        /// Loss function: cross-entropy for a single class per image, bce for multiple labels, mse for
        /// numbers
        Identity loss: LossName = LossName::CrossEntropy => arg(long, value_parser = named::<LossName>());
        /// Momentum for sgd, at least 0 and below 1
        Identity momentum: f64 = 0.9 => arg(long);
        /// Nesterov's momentum, for sgd
        Identity nesterov: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Weight decay. The default is 0 for sgd and 0.01 for adamw
        Identity weight_decay: Option<f64> = None => arg(long);
        /// Schedule of the learning rate
        Identity lr_scheduler: Scheduler = Scheduler::Cosine => arg(long, value_parser = named::<Scheduler>());
        /// Fraction of updates with an increasing learning rate
        Identity warmup_ratio: f64 = 0.05 => arg(long, value_name = "SHARE");
        /// Epochs between two reductions of the learning rate by the scheduler step
        Identity lr_step_size: u32 = 30 => arg(long, value_name = "EPOCHS");
        /// Factor for each reduction by the scheduler step
        Identity lr_gamma: f64 = 0.1 => arg(long, value_name = "FACTOR");
        /// Mode of BatchNormalization in trained layers. stored: normalize by stored statistics. frozen: also
        /// freeze scale and bias. updated: PyTorch's training mode
        Identity batch_norm: BatchNorm = BatchNorm::Stored => arg(long, value_parser = named::<BatchNorm>());
        /// Limit the norm of all gradients to this value
        Identity clip_grad_norm: Option<f64> = None => arg(long, value_name = "NORM");
        /// Keep an exponential moving average of the weights with this decay. The average is validated and
        /// written
        Identity model_ema_decay: Option<f64> = None => arg(long, value_name = "DECAY");
        /// Dropout probability before the head, and between the linear layers of larger classifiers
        Identity dropout: f64 = 0.0 => arg(long, value_name = "SHARE");
        /// Standardize the features of a linear classifier over the training images. Requires an additional
        /// pass at the beginning. The input of the tuned model is not affected
        Identity standardize: bool = false
            => arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set);
        /// Fraction of the target to distribute over all classes
        Identity label_smoothing: f64 = 0.0 => arg(long, value_name = "SHARE");
        /// Weight of each class in the loss. balanced increases the weight of rare classes
        Identity class_weights: ClassWeights = ClassWeights::None => arg(long, value_parser = named::<ClassWeights>());
        /// Selection of images for an epoch. balanced draws all classes equally often
        Identity sampling: Sampling = Sampling::Shuffle => arg(long, value_parser = named::<Sampling>());
        /// Mix images at the freeze cut by Mixup with this alpha; 0 is off
        Identity mixup_alpha: f64 = 0.0 => arg(long, value_name = "ALPHA");
        /// Mix images at the freeze cut by CutMix with this alpha, if activations are feature maps. 0 is off.
        /// If Mixup is also on, each batch uses one of the two
        Identity cutmix_alpha: f64 = 0.0 => arg(long, value_name = "ALPHA");
        /// Mirror training images with this probability. Uses 0.5 if the value is omitted
        Identity hflip: f64 = 0.0 => arg(long, value_name = "P", num_args = 0..=1, default_missing_value = "0.5");
        /// Use K fixed augmentations per training image, which repeat every K epochs. By default, each epoch
        /// uses new ones
        Identity views: Option<u32> = None
            => arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..));
        /// Seed for shuffling, new weights, the choice of validation images, mixing and augmentation
        Identity seed: u64 = 0 => arg(long);
        /// Learning rate, or rates by group (head=0.1,rest=0.01). Prefixes of weight names define further
        /// groups. The default is 0.003 for sgd (0.0003 with mse) and 0.001 for adamw
        Identity lr: Option<LearningRates> = None => arg(long, value_name = "RATE");
        /// Crop and resize a random part of training images. MIN and MAX limit the fraction of the image
        /// area. Uses 0.08,1 if the value is omitted
        Identity random_resized_crop: Option<RandomResizedCrop> = None
            => arg(long, value_name = "MIN,MAX", num_args = 0..=1, default_missing_value = "0.08,1", value_parser = random_resized_crop);
        /// Apply OPS random operations with a magnitude of 0 to 30 to each training image. Uses 2,9 if the
        /// value is omitted
        Identity rand_augment: Option<RandAugment> = None
            => arg(long, value_name = "OPS,MAGNITUDE", num_args = 0..=1, default_missing_value = "2,9", value_parser = rand_augment);
        /// Change the colors of training images randomly. Pass a common number for brightness, contrast and
        /// saturation, or three separate numbers. A fourth number changes the hue, up to 0.5
        Identity color_jitter: Option<ColorJitter> = None
            => arg(long, value_name = "X[,X,X[,HUE]]", value_parser = color_jitter);
        /// Erase a random rectangle of training images with this probability
        Identity random_erasing: Option<RandomErasing> = None
            => arg(long, value_name = "P", value_parser = random_erasing);
    }
}

names! {
    "snake_case",
    /// Optimizer name.
    OptimizerName {
        /// Stochastic gradient descent with momentum.
        #[default]
        Sgd,
        /// Adam with decoupled weight decay. Betas are 0.9 and 0.999, and epsilon is 1e-8.
        Adamw,
    }

    /// Mode of `BatchNormalization` in trained layers.
    BatchNorm {
        /// Normalizes by stored statistics, which do not change. Scale and bias are trained.
        #[default]
        Stored,
        /// Freezes statistics, scale and bias.
        Frozen,
        /// Normalizes by batch statistics and updates the stored ones (PyTorch's training mode).
        Updated,
    }

    /// Weight of each class in the loss.
    ClassWeights {
        /// Equal weights.
        #[default]
        None,
        /// Number of samples divided by the number of classes and the number of samples in the class
        /// (scikit-learn's `balanced`). With binary cross-entropy, positive samples have the weight negatives
        /// / positives per label (PyTorch's recommendation for `pos_weight`).
        Balanced,
    }

    /// Selection of samples for an epoch.
    Sampling {
        /// All samples in random order.
        #[default]
        Shuffle,
        /// The same number of samples, drawn with replacement and equal probability per class
        /// (`torch.utils.data.WeightedRandomSampler` with inverse class frequencies).
        Balanced,
    }
}

names! {
    "kebab-case",
    /// Loss name.
    LossName {
        /// Softmax cross-entropy for a single class per sample (`torch.nn.CrossEntropyLoss`).
        #[default]
        CrossEntropy,
        /// Binary cross-entropy for multiple labels per sample (`torch.nn.BCEWithLogitsLoss`). With classes,
        /// the targets are one-hot.
        Bce,
        /// Mean squared error, for numbers (`torch.nn.MSELoss`).
        Mse,
    }

    /// Schedule of the learning rate.
    Scheduler {
        /// Constant after the warm-up (Hugging Face's `constant_with_warmup`).
        Constant,
        /// Half a cosine down to 0 (Hugging Face's `cosine`).
        #[default]
        Cosine,
        /// Multiplied by `lr_gamma` every `lr_step_size` epochs (`torch.optim.lr_scheduler.StepLR`).
        Step,
        /// Cosine increase from 1/25 of the rate, then decrease to 1/250,000
        /// (`torch.optim.lr_scheduler.OneCycleLR` with constant momentum). `warmup_ratio` is the fraction of
        /// updates with an increasing rate.
        OneCycle,
    }
}

impl Recipe {
    /// Returns a copy with explicit values for defaults that depend on other settings.
    #[must_use]
    pub fn resolved(&self) -> Self {
        Self {
            lr: Some(self.rates()),
            weight_decay: Some(self.decay()),
            ..self.clone()
        }
    }

    /// Returns the learning rates. The default depends on optimizer and loss.
    pub fn rates(&self) -> LearningRates {
        let usual = match (self.optimizer, self.loss) {
            // The curvature is twice the squared norm of the features. With 512 features of magnitude 1 and
            // momentum 0.9, training diverges at rates above 0.004.
            (OptimizerName::Sgd, LossName::Mse) => 0.0003,
            (OptimizerName::Sgd, _) => 0.003,
            (OptimizerName::Adamw, _) => 0.001,
        };
        self.lr.clone().unwrap_or(LearningRates::One(usual))
    }

    /// Returns the weight decay. The default depends on the optimizer.
    pub fn decay(&self) -> f64 {
        self.weight_decay.unwrap_or(match self.optimizer {
            OptimizerName::Sgd => 0.0,
            OptimizerName::Adamw => 0.01,
        })
    }

    /// Returns the augmentation of training images.
    pub fn augmentation(&self) -> Augmentation {
        Augmentation {
            random_resized_crop: self.random_resized_crop,
            hflip: self.hflip,
            rand_augment: self.rand_augment,
            color_jitter: self.color_jitter,
            random_erasing: self.random_erasing,
        }
    }

    /// Returns true if samples are mixed, so targets are class probabilities.
    pub fn mixes(&self) -> bool {
        self.mixup_alpha > 0.0 || self.cutmix_alpha > 0.0
    }

    /// Validates the recipe.
    ///
    /// # Errors
    /// Returns a [`SettingError`] for the first invalid setting.
    pub fn check(&self) -> Result<(), SettingError> {
        self.check_counts()?;
        self.augmentation().check().map_err(|error| {
            let must = format!("it must be {}", error.must);
            SettingError::new(error.what, format!("{:?}", error.value), must)
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
        let held = SettingError::require;
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
        let gamma = self.lr_gamma;
        held(positive(gamma), "lr_gamma", &gamma, "it must be above 0")?;
        for (what, alpha) in [
            ("mixup_alpha", self.mixup_alpha),
            ("cutmix_alpha", self.cutmix_alpha),
        ] {
            let holds = alpha == 0.0 || positive(alpha);
            held(holds, what, &alpha, "it must be at least 0")?;
        }
        Ok(())
    }

    /// Checks settings that depend on the loss.
    fn check_loss(&self) -> Result<(), SettingError> {
        let held = SettingError::require;
        let numbers = self.loss == LossName::Mse;
        held(
            self.loss == LossName::CrossEntropy || self.label_smoothing == 0.0,
            "label_smoothing",
            &self.label_smoothing,
            "it requires the cross-entropy loss",
        )?;
        held(
            !numbers || self.cutmix_alpha == 0.0,
            "cutmix_alpha",
            &self.cutmix_alpha,
            "CutMix does not support targets that are numbers; use mixup_alpha",
        )?;
        for (what, balanced) in [
            ("class_weights", self.class_weights == ClassWeights::Balanced),
            ("sampling", self.sampling == Sampling::Balanced),
        ] {
            let must = "it requires classes or labels, not numbers";
            held(!(numbers && balanced), what, &"balanced", must)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_recipes_are_refused() {
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
    fn recipes_survive_a_toml_round_trip() {
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
