//! How a network is trained: flags, and the file that may hold them.

use super::augment::AugmentFlags;
use anyhow::{Context, Result};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use frostline_trainer::{
    ClassWeights, LearningRates, LossName, OptimizerName, Recipe, Recorded, Sampling, Scheduler,
};
use frostline_training::BatchNorm;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use strum::VariantNames;

/// What is not said here, the recipe's file says, or its default holds.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Recipe")]
pub(crate) struct RecipeFlags {
    /// Take the recipe from a TOML file with these flags' names (underscores for hyphens), or from the config.json of a run; flags come before it
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    recipe: Option<PathBuf>,
    /// Passes over the training images [default: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    epochs: Option<u32>,
    /// Images per batch [default: 64]
    #[arg(long, value_parser = super::value::positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<usize>,
    /// Batches whose gradients make one update [default: 1]
    #[arg(long, value_name = "N", value_parser = super::value::positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    gradient_accumulation_steps: Option<usize>,
    /// The optimiser [default: sgd]
    #[arg(long, value_parser = named::<OptimizerName>())]
    #[serde(skip_serializing_if = "Option::is_none")]
    optimizer: Option<OptimizerName>,
    /// What is minimised: cross-entropy for one class an image, bce for several labels, mse for numbers [default: cross-entropy]
    #[arg(long, value_parser = named::<LossName>())]
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<LossName>,
    /// Learning rate, or one by group, as in head=0.1,rest=0.01 (also how weights' names begin); by default 0.003 for sgd (0.0003 with mse) and 0.001 for adamw
    #[arg(long, value_name = "RATE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lr: Option<LearningRates>,
    /// Momentum, for sgd [default: 0.9]
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    momentum: Option<f64>,
    /// Nesterov's momentum, for sgd
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nesterov: bool,
    /// Weight decay; by default 0 for sgd and 0.01 for adamw
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_decay: Option<f64>,
    /// How the learning rate goes [default: cosine]
    #[arg(long, value_parser = named::<Scheduler>())]
    #[serde(skip_serializing_if = "Option::is_none")]
    lr_scheduler: Option<Scheduler>,
    /// Share of updates in which the rate rises from 0 [default: 0.05]
    #[arg(long, value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    warmup_ratio: Option<f64>,
    /// Epochs between two cuts of the rate, for the scheduler step [default: 30]
    #[arg(long, value_name = "EPOCHS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lr_step_size: Option<u32>,
    /// What the scheduler step multiplies the rate by [default: 0.1]
    #[arg(long, value_name = "FACTOR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lr_gamma: Option<f64>,
    /// What becomes of BatchNormalization in the layers that are trained: stored normalises by the stored statistics, frozen keeps scale and bias as
    /// well, updated is PyTorch's training mode [default: stored]
    #[arg(long, value_parser = named::<BatchNorm>())]
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_norm: Option<BatchNorm>,
    /// Cut the norm of all gradients down to this
    #[arg(long, value_name = "NORM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    clip_grad_norm: Option<f64>,
    /// Keep an average of the weights, which keeps this part of itself at an update, and validate and write that
    #[arg(long, value_name = "DECAY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    model_ema_decay: Option<f64>,
    /// Share of what is dropped at random in a step in front of the head, and between the classifier's linear layers where it has several
    /// [default: 0]
    #[arg(long, value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    dropout: Option<f64>,
    /// Standardise the features of a linear classifier over the training images, in one pass before the first epoch; the tuned model takes the same
    /// input as without
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    standardize: bool,
    /// Part of the target that is spread over all classes [default: 0]
    #[arg(long, value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    label_smoothing: Option<f64>,
    /// What each class counts in the loss: balanced counts rare ones more [default: none]
    #[arg(long, value_parser = named::<ClassWeights>())]
    #[serde(skip_serializing_if = "Option::is_none")]
    class_weights: Option<ClassWeights>,
    /// How an epoch's images are drawn: balanced takes every class as often [default: shuffle]
    #[arg(long, value_parser = named::<Sampling>())]
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling: Option<Sampling>,
    /// Mix images at the freeze cut by Mixup with this alpha [default: 0, which is off]
    #[arg(long, value_name = "ALPHA")]
    #[serde(skip_serializing_if = "Option::is_none")]
    mixup_alpha: Option<f64>,
    /// Mix images at the freeze cut by CutMix with this alpha, where that has maps [default: 0, which is off]
    #[arg(long, value_name = "ALPHA")]
    #[serde(skip_serializing_if = "Option::is_none")]
    cutmix_alpha: Option<f64>,
    /// Seeds the shuffle, the new classifier's weights, the choice of validation images, mixing and what varies them [default: 0]
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

impl RecipeFlags {
    /// The whole recipe, with how images are varied.
    pub(crate) fn resolve(&self, augment: &AugmentFlags) -> Result<Recipe> {
        let mut words = match &self.recipe {
            Some(file) if file.ends_with("config.json") => {
                let run = file.parent().unwrap_or(Path::new("."));
                let mut recipe = Recorded::read(run)?.recipe;
                // TOML has no word for nothing.
                recipe.retain(|_, value| !value.is_null());
                toml::Table::try_from(recipe)?
            }
            Some(file) => {
                let text = std::fs::read_to_string(file);
                let text = text.with_context(|| format!("cannot read the recipe {}", file.display()))?;
                // Alone first, so that a fault is the file's.
                let of_file = |error| anyhow::anyhow!("the recipe {}: {error}", file.display());
                toml::from_str::<Recipe>(&text).map_err(of_file)?;
                toml::from_str(&text).map_err(of_file)?
            }
            None => toml::Table::new(),
        };
        words.extend(toml::Table::try_from(self)?);
        words.extend(toml::Table::try_from(augment)?);
        Ok(Recipe::deserialize(words)?.resolved())
    }
}

/// Takes the names of a type's values.
fn named<T>() -> impl TypedValueParser<Value = T>
where
    T: FromStr + VariantNames + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS).try_map(|word| word.parse())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: RecipeFlags,
        #[command(flatten)]
        augment: AugmentFlags,
    }

    fn resolve(arguments: &[&str]) -> Result<Recipe> {
        let words = std::iter::once("frostline").chain(arguments.iter().copied());
        let Command { flags, augment } = Command::try_parse_from(words)?;
        flags.resolve(&augment)
    }

    #[test]
    fn flags_come_before_the_file_and_that_before_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recipe.toml");
        let text = "epochs = 7\noptimizer = \"adamw\"\nlr_scheduler = \"one-cycle\"\n[lr]\nhead = 0.1\nrest = 0.01\n";
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let recipe = resolve(&["--recipe", file, "--epochs", "3", "--class-weights", "balanced"]).unwrap();
        assert_eq!((recipe.epochs, recipe.optimizer), (3, OptimizerName::Adamw));
        assert_eq!(recipe.lr.as_ref().unwrap().to_string(), "head=0.1,rest=0.01");
        assert_eq!(recipe.lr_scheduler, Scheduler::OneCycle);
        assert_eq!(recipe.class_weights, ClassWeights::Balanced);
        assert_eq!((recipe.batch, recipe.weight_decay), (64, Some(0.01)));
        assert_eq!(
            resolve(&["--recipe", file, "--lr", "0.5"]).unwrap().lr,
            Some(LearningRates::One(0.5))
        );
    }

    #[test]
    fn augmentation_is_said_as_torchvision_and_timm_say_it() {
        let recipe = resolve(&[
            "--random-resized-crop",
            "--hflip",
            "--rand-augment",
            "3,7",
            "--color-jitter",
            "0.4",
            "--random-erasing",
            "0.25",
            "--views",
            "4",
        ]);
        let recipe = recipe.unwrap();
        recipe.check().unwrap();
        let augmentation = recipe.augmentation;
        assert_eq!(augmentation.random_resized_crop.unwrap().scale, [0.08, 1.0]);
        assert_eq!((augmentation.hflip, recipe.views), (0.5, Some(4)));
        assert_eq!(augmentation.rand_augment.unwrap().num_ops, 3);
        let jitter = augmentation.color_jitter.unwrap();
        assert_eq!((jitter.saturation, jitter.hue), (0.4, 0.0));
        assert_eq!(augmentation.random_erasing.unwrap().p, 0.25);
        let text = toml::to_string(&recipe).unwrap();
        assert_eq!(toml::from_str::<Recipe>(&text).unwrap(), recipe, "{text}");
        assert!(resolve(&[]).unwrap().augmentation.is_none());
        for bad in [
            ["--color-jitter", "0.1,0.2"],
            ["--rand-augment", "2"],
            ["--random-resized-crop", "0.1"],
            ["--views", "0"],
        ] {
            assert!(resolve(&bad).is_err(), "{bad:?}");
        }
        for unfit in [
            ["--hflip", "7"],
            ["--rand-augment", "2,31"],
            ["--random-resized-crop", "0.9,0.1"],
        ] {
            assert!(resolve(&unfit).unwrap().check().is_err(), "{unfit:?}");
        }
    }

    #[test]
    fn features_are_varied_by_words_in_a_file_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recipe.toml");
        std::fs::write(
            &file,
            "feature_augment = \"noise=0.05,hflip=0.5\"\nhflip = 0.25\n",
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let recipe = resolve(&["--recipe", file]).unwrap();
        let augment = recipe.feature_augment;
        assert_eq!(
            (augment.noise, augment.hflip, recipe.augmentation.hflip),
            (0.05, 0.5, 0.25)
        );
        let text = toml::to_string(&recipe).unwrap();
        assert!(
            text.contains("feature_augment = \"hflip=0.5,noise=0.05\""),
            "{text}"
        );
        assert!(
            !toml::to_string(&Recipe::default())
                .unwrap()
                .contains("feature_augment")
        );
        let other = resolve(&["--recipe", file, "--feature-augment", "posterize=4"]).unwrap();
        assert_eq!(other.feature_augment.to_string(), "posterize=4");
        std::fs::write(file, "feature_augment = \"noises=0.05\"\n").unwrap();
        let error = resolve(&["--recipe", file]).unwrap_err().to_string();
        assert!(
            error.contains("recipe.toml") && error.contains("'noises'"),
            "{error}"
        );
        assert!(resolve(&["--feature-augment", "noise"]).is_err());
    }

    #[test]
    fn what_is_printed_is_a_recipe_again() {
        let recipe = resolve(&[
            "--lr",
            "head=0.1,rest=0.01",
            "--model-ema-decay",
            "0.99",
            "--nesterov",
        ])
        .unwrap();
        let text = toml::to_string(&recipe).unwrap();
        assert_eq!(toml::from_str::<Recipe>(&text).unwrap(), recipe);
    }

    #[test]
    fn a_word_that_no_recipe_has_is_refused_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recipe.toml");
        std::fs::write(&file, "epoch = 7\n").unwrap();
        let error = resolve(&["--recipe", file.to_str().unwrap()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("recipe.toml") && error.contains("epoch"),
            "{error}"
        );
        assert!(resolve(&["--optimizer", "adam"]).is_err());
    }
}
