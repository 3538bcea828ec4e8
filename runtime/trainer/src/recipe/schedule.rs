use super::steps::Steps;
use crate::Scheduler;
use std::f64::consts::PI;

impl Steps {
    /// Returns the learning rate of an update, counted from 0, relative to the largest rate.
    pub(super) fn rate_factor(&self, update: u64) -> f64 {
        let recipe = &self.recipe;
        let total = (self.updates * u64::from(recipe.epochs)).max(1);
        if recipe.lr_scheduler == Scheduler::OneCycle {
            return one_cycle(recipe.warmup_ratio, update as f64, total as f64);
        }
        let warm = (total as f64 * recipe.warmup_ratio).ceil() as u64;
        if update < warm {
            // Hugging Face starts at 0, which wastes an update in short jobs.
            return (update + 1) as f64 / (warm + 1) as f64;
        }
        match recipe.lr_scheduler {
            Scheduler::Cosine => {
                let progress = (update - warm) as f64 / (total - warm).max(1) as f64;
                f64::midpoint(1.0, (PI * progress.min(1.0)).cos())
            }
            Scheduler::Step => {
                let epoch = update / self.updates.max(1);
                recipe
                    .lr_gamma
                    .powf((epoch / u64::from(recipe.lr_step_size)) as f64)
            }
            Scheduler::Constant | Scheduler::OneCycle => 1.0,
        }
    }
}

fn one_cycle(warmup_ratio: f64, update: f64, total: f64) -> f64 {
    let first = 1.0 / 25.0;
    let last = 1.0 / 250_000.0;
    let peak = warmup_ratio * total - 1.0;
    let end = total - 1.0;
    let (from, to, part) = if update <= peak && peak > 0.0 {
        (first, 1.0, update / peak)
    } else {
        let peak = peak.max(0.0);
        (1.0, last, (update - peak) / (end - peak).max(1.0))
    };
    to + (from - to) * f64::midpoint(1.0, (PI * part.min(1.0)).cos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recipe;

    /// Schedules four epochs of five updates.
    fn schedule(lr_scheduler: Scheduler, warmup_ratio: f64) -> Steps {
        schedule_of(lr_scheduler, warmup_ratio, 5, 4)
    }

    fn schedule_of(lr_scheduler: Scheduler, warmup_ratio: f64, updates: usize, epochs: u32) -> Steps {
        let recipe = Recipe {
            lr_scheduler,
            warmup_ratio,
            lr_step_size: 2,
            lr_gamma: 0.1,
            epochs,
            batch: 1,
            ..Recipe::default()
        };
        Steps::new(&recipe, updates)
    }

    fn expect(schedule: &Steps, expected: &[f64]) {
        for (update, expected) in expected.iter().enumerate() {
            let factor = schedule.rate_factor(update as u64);
            assert!(
                (factor - expected).abs() < 1e-9,
                "{schedule:?} at {update}: {factor} instead of {expected}"
            );
        }
    }

    #[test]
    fn cosine_is_that_of_hugging_face() {
        // transformers.get_cosine_schedule_with_warmup(optimizer, 4, 20), except that the warm-up does not
        // start at 0.
        let expected = [
            0.2,
            0.4,
            0.6,
            0.8,
            1.0,
            0.990_392_640_201_615_2,
            0.961_939_766_255_643_4,
            0.915_734_806_151_272_6,
            0.853_553_390_593_273_7,
        ];
        expect(&schedule(Scheduler::Cosine, 0.2), &expected);
        assert!(schedule(Scheduler::Cosine, 0.2).rate_factor(20).abs() < 1e-12);
        assert_eq!(schedule(Scheduler::Cosine, 0.0).rate_factor(0), 1.0);
    }

    #[test]
    fn steps_come_with_epochs() {
        let expected: Vec<f64> = (0..20)
            .map(|update| if update < 10 { 1.0 } else { 0.1 })
            .collect();
        expect(&schedule(Scheduler::Step, 0.0), &expected);
        expect(
            &schedule(Scheduler::Constant, 0.1),
            &[1.0 / 3.0, 2.0 / 3.0, 1.0, 1.0],
        );
    }

    #[test]
    fn learning_rates_are_always_positive() {
        for scheduler in [
            Scheduler::Cosine,
            Scheduler::Constant,
            Scheduler::OneCycle,
            Scheduler::Step,
        ] {
            for (updates, epochs) in [(1, 1), (1, 3), (2, 1), (7, 2)] {
                let few = schedule_of(scheduler, 0.1, updates, epochs);
                let all = 0..updates as u64 * u64::from(epochs);
                let least = all.map(|update| few.rate_factor(update));
                assert!(least.fold(1.0, f64::min) > 0.0, "{few:?}");
            }
        }
    }

    #[test]
    fn one_cycle_is_that_of_torch() {
        expect(&schedule(Scheduler::OneCycle, 0.3), &ONE_CYCLE);
    }

    /// `torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=20, pct_start=0.3, cycle_momentum=False)`.
    const ONE_CYCLE: [f64; 20] = [
        0.04000000000000004,
        0.1316718427000253,
        0.3716718427000253,
        0.6683281572999747,
        0.9083281572999747,
        1.0,
        0.9874640062350873,
        0.9504846320134737,
        0.89091617757105,
        0.8117456539497631,
        0.7169430017913008,
        0.6112620219362893,
        0.500002,
        0.3887419780637107,
        0.2830609982086992,
        0.188258346050237,
        0.10908782242895,
        0.04951936798652629,
        0.01253999376491255,
        4e-06,
    ];
}
