//! Derives the settings of training steps from a recipe.

mod mix;
mod rates;
mod schedule;
mod steps;
mod views;

pub(crate) use rates::factors;
pub(crate) use steps::Steps;
pub(crate) use views::Views;

use crate::{LossName, OptimizerName, Recipe};
use frostline_job::BatchNorm;
use frostline_training::{Loss, Optimizer, StepSettings};

/// Returns the optimizer and its settings.
pub(crate) fn optimizer(recipe: &Recipe) -> Optimizer {
    let weight_decay = recipe.decay();
    match recipe.optimizer {
        OptimizerName::Sgd => Optimizer::Sgd {
            momentum: recipe.momentum,
            nesterov: recipe.nesterov,
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

/// Returns the augmentations of training samples per epoch.
pub(crate) fn views(recipe: &Recipe) -> Views {
    Views {
        augmentation: recipe.augmentation(),
        seed: recipe.seed,
        different: recipe.views,
    }
}

/// Returns the training mode of `BatchNormalization`.
pub(crate) fn batch_norm(recipe: &Recipe) -> frostline_training::BatchNorm {
    match recipe.batch_norm {
        BatchNorm::Stored => frostline_training::BatchNorm::Stored,
        BatchNorm::Frozen => frostline_training::BatchNorm::Frozen,
        BatchNorm::Updated => frostline_training::BatchNorm::Updated,
    }
}

/// Returns the step settings, except those that depend on network and data.
pub(crate) fn step_settings(recipe: &Recipe) -> StepSettings {
    StepSettings {
        loss: loss(recipe),
        batch_norm: batch_norm(recipe),
        clip_norm: recipe.clip_grad_norm,
        accumulates: recipe.gradient_accumulation_steps > 1,
        averages: recipe.model_ema_decay.is_some(),
        ..optimizer(recipe).into()
    }
}

fn loss(recipe: &Recipe) -> Loss {
    match recipe.loss {
        LossName::CrossEntropy => Loss::CrossEntropy {
            label_smoothing: recipe.label_smoothing,
            class_weights: None,
            mixed: recipe.mixes(),
        },
        LossName::Bce => Loss::BinaryCrossEntropy {
            positive_weights: None,
        },
        LossName::Mse => Loss::MeanSquared,
    }
}

/// Returns class weights that balance the loss, from the number of samples per class.
pub(crate) fn balanced(counts: &[usize]) -> Vec<f64> {
    let total: usize = counts.iter().sum();
    let even = total as f64 / counts.len().max(1) as f64;
    counts.iter().map(|count| even / (*count).max(1) as f64).collect()
}

/// Returns weights that balance positive and negative samples for each output. `yes` is the number of
/// positive samples per output, `all` the number of samples.
pub(crate) fn positive(yes: &[usize], all: usize) -> Vec<f64> {
    yes.iter()
        .map(|yes| all.saturating_sub(*yes).max(1) as f64 / (*yes).max(1) as f64)
        .collect()
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
    fn positive_weights_balance_each_output() {
        assert_eq!(positive(&[25, 50, 0, 100], 100), [3.0, 1.0, 100.0, 0.01]);
    }

    #[test]
    fn invalid_recipes_are_refused() {
        let bad: [fn(&mut Recipe); 2] = [
            |recipe| recipe.label_smoothing = 1.0,
            |recipe| (recipe.momentum, recipe.nesterov) = (0.0, true),
        ];
        for change in bad {
            let mut recipe = Recipe::default();
            step_settings(&recipe).check().unwrap();
            change(&mut recipe);
            assert!(step_settings(&recipe).check().is_err(), "{recipe:?}");
        }
    }
}
