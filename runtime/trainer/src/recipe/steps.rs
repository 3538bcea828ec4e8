use super::mix;
use crate::Recipe;
use frostline_compute::StepTerms;

/// Schedules the steps of a job.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    pub(super) recipe: Recipe,
    /// Updates per epoch.
    pub(super) updates: u64,
    /// Batches per epoch.
    batches: usize,
}

impl Steps {
    /// Creates the schedule for epochs with `samples` samples.
    pub(crate) fn new(recipe: &Recipe, samples: usize) -> Self {
        let batches = samples.div_ceil(recipe.batch.max(1));
        let updates = batches.div_ceil(recipe.gradient_accumulation_steps.max(1));
        Self {
            recipe: recipe.clone(),
            updates: updates as u64,
            batches,
        }
    }

    /// Returns the terms for batch `index`, counted from 0, of `epoch`, counted from 1.
    pub(crate) fn terms(&self, epoch: u32, index: usize) -> StepTerms {
        let together = self.recipe.gradient_accumulation_steps;
        let group = index / together;
        let epochs = u64::from(epoch.saturating_sub(1));
        let update = epochs * self.updates + group as u64;
        let step = epochs * self.batches as u64 + index as u64;
        let updates = (index + 1).is_multiple_of(together) || index + 1 == self.batches;
        StepTerms {
            step,
            rate: (self.recipe.rates().largest() * self.rate_factor(update)) as f32,
            updates,
            decay: self.decay(update) as f32,
            mix: mix::draw(&self.recipe, step),
        }
    }

    /// Returns the decay for an update. It is smaller at first, like the warm-up in timm's `ModelEmaV3`, so
    /// that initial weights do not dominate the average in short jobs.
    fn decay(&self, update: u64) -> f64 {
        let warm = (1.0 + update as f64) / (10.0 + update as f64);
        self.recipe.model_ema_decay.unwrap_or_default().min(warm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LearningRates, Scheduler};

    fn steps() -> Steps {
        let recipe = Recipe {
            batch: 4,
            epochs: 2,
            gradient_accumulation_steps: 3,
            lr: Some(LearningRates::One(0.5)),
            lr_scheduler: Scheduler::Constant,
            warmup_ratio: 0.5,
            model_ema_decay: Some(0.2),
            ..Recipe::default()
        };
        // Five batches per epoch, accumulated in two groups.
        Steps::new(&recipe, 18)
    }

    #[test]
    fn the_last_batch_of_a_group_and_of_an_epoch_updates() {
        let updates = |epoch| {
            (0..5)
                .map(|index| steps().terms(epoch, index).updates)
                .collect::<Vec<_>>()
        };
        assert_eq!(updates(1), [false, false, true, false, true]);
        assert_eq!(updates(2), updates(1));
    }

    #[test]
    fn the_rate_follows_updates_and_averages_begin_fresh() {
        let rates: Vec<f32> = (0..5).map(|index| steps().terms(1, index).rate).collect();
        let [first, second] = [1.0 / 6.0, 1.0 / 3.0];
        assert_eq!(rates, [first, first, first, second, second]);
        assert_eq!(steps().terms(2, 0).rate, 0.5);
        assert_eq!(steps().terms(1, 0).decay, 0.1);
        assert_eq!(steps().terms(2, 4).decay, 0.2);
    }
}
