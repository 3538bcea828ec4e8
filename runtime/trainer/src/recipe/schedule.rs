use crate::Scheduler;
use std::f64::consts::PI;

/// Learning rate schedule, relative to the largest rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) scheduler: Scheduler,
    /// Fraction of all updates.
    pub(crate) warmup_ratio: f64,
    pub(crate) step_size: u32,
    pub(crate) gamma: f64,
    /// Updates per epoch.
    pub(crate) updates: u64,
    pub(crate) epochs: u32,
}

impl Schedule {
    /// Returns the factor for an update, counted from 0.
    pub(crate) fn factor(&self, update: u64) -> f64 {
        let total = (self.updates * u64::from(self.epochs)).max(1);
        if self.scheduler == Scheduler::OneCycle {
            return self.one_cycle(update as f64, total as f64);
        }
        let warm = (total as f64 * self.warmup_ratio).ceil() as u64;
        if update < warm {
            // Hugging Face starts at 0, which wastes an update in short jobs.
            return (update + 1) as f64 / (warm + 1) as f64;
        }
        match self.scheduler {
            Scheduler::Cosine => {
                let progress = (update - warm) as f64 / (total - warm).max(1) as f64;
                f64::midpoint(1.0, (PI * progress.min(1.0)).cos())
            }
            Scheduler::Step => {
                let epoch = update / self.updates.max(1);
                self.gamma.powf((epoch / u64::from(self.step_size)) as f64)
            }
            Scheduler::Constant | Scheduler::OneCycle => 1.0,
        }
    }

    fn one_cycle(&self, update: f64, total: f64) -> f64 {
        let first = 1.0 / 25.0;
        let last = 1.0 / 250_000.0;
        let peak = self.warmup_ratio * total - 1.0;
        let end = total - 1.0;
        let (from, to, part) = if update <= peak && peak > 0.0 {
            (first, 1.0, update / peak)
        } else {
            let peak = peak.max(0.0);
            (1.0, last, (update - peak) / (end - peak).max(1.0))
        };
        to + (from - to) * f64::midpoint(1.0, (PI * part.min(1.0)).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(scheduler: Scheduler, warmup_ratio: f64) -> Schedule {
        Schedule {
            scheduler,
            warmup_ratio,
            step_size: 2,
            gamma: 0.1,
            updates: 5,
            epochs: 4,
        }
    }

    fn expect(schedule: Schedule, expected: &[f64]) {
        for (update, expected) in expected.iter().enumerate() {
            let factor = schedule.factor(update as u64);
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
        expect(schedule(Scheduler::Cosine, 0.2), &expected);
        assert!(schedule(Scheduler::Cosine, 0.2).factor(20).abs() < 1e-12);
        assert_eq!(schedule(Scheduler::Cosine, 0.0).factor(0), 1.0);
    }

    #[test]
    fn steps_come_with_epochs() {
        let expected: Vec<f64> = (0..20)
            .map(|update| if update < 10 { 1.0 } else { 0.1 })
            .collect();
        expect(schedule(Scheduler::Step, 0.0), &expected);
        expect(
            schedule(Scheduler::Constant, 0.1),
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
                let few = Schedule {
                    updates,
                    epochs,
                    ..schedule(scheduler, 0.1)
                };
                let least = (0..updates * u64::from(epochs)).map(|update| few.factor(update));
                assert!(least.fold(1.0, f64::min) > 0.0, "{few:?}");
            }
        }
    }

    #[test]
    fn one_cycle_is_that_of_torch() {
        let cycle = schedule(Scheduler::OneCycle, 0.3);
        expect(cycle, &ONE_CYCLE);
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
