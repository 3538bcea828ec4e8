use frostline_job::TrainedStep;

/// Maximum number of stored steps. Charts show fewer.
const MOST: usize = 1 << 18;
/// Maximum number of distinct splits. Jobs use far fewer.
const SPLITS: usize = 256;

/// A training step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RecordedStep {
    /// Seconds from the start of the job to the end of the step.
    pub(crate) at: f64,
    pub(crate) epoch: u32,
    pub(crate) step: u64,
    pub(crate) loss: f32,
    pub(crate) waited: f32,
    pub(crate) computed: f32,
    pub(crate) bytes: f32,
    /// True if the batch contains cached features, which makes the step faster.
    pub(crate) has_cached_features: bool,
    /// Index of the split in [`RecordedSteps::splits`], or its length if there are too many splits.
    pub(crate) split: u16,
}

/// Steps of a job in order.
///
/// If there are too many steps, only multiples of [`RecordedSteps::stride`] are stored, and the stride doubles as
/// often as necessary. Steps repeated by a resumed job replace the earlier ones.
#[derive(Debug)]
pub(crate) struct RecordedSteps {
    steps: Vec<RecordedStep>,
    splits: Vec<String>,
    stride: u64,
    limit: usize,
}

impl Default for RecordedSteps {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            splits: Vec::new(),
            stride: 1,
            limit: MOST,
        }
    }
}

impl RecordedSteps {
    pub(crate) fn sampled(&self) -> &[RecordedStep] {
        &self.steps
    }

    pub(crate) fn splits(&self) -> &[String] {
        &self.splits
    }

    /// Returns the number of steps that each stored step represents.
    pub(crate) fn stride(&self) -> u64 {
        self.stride
    }

    /// Returns the name of a step's split.
    pub(crate) fn split(&self, step: &RecordedStep) -> &str {
        self.splits
            .get(usize::from(step.split))
            .map_or("others", String::as_str)
    }

    /// Adds a step that ended `at` seconds after the start of the job.
    pub(crate) fn add(&mut self, at: f64, event: &TrainedStep) {
        while self.steps.last().is_some_and(|last| last.step >= event.step) {
            self.steps.pop();
        }
        if !event.step.is_multiple_of(self.stride) {
            return;
        }
        let step = RecordedStep {
            at,
            epoch: event.epoch,
            step: event.step,
            loss: event.loss,
            waited: seconds(event.waited_seconds),
            computed: seconds(event.computed_seconds),
            bytes: event.bytes_received as f32,
            has_cached_features: event.cached_rows > 0,
            split: self.place(&event.split.to_string()),
        };
        self.steps.push(step);
        while self.steps.len() >= self.limit {
            self.stride = self.stride.saturating_mul(2);
            let stride = self.stride;
            self.steps.retain(|step| step.step.is_multiple_of(stride));
        }
    }

    fn place(&mut self, split: &str) -> u16 {
        let known = self.splits.iter().position(|known| known == split);
        let place = known.unwrap_or(self.splits.len());
        if known.is_none() && place < SPLITS {
            self.splits.push(split.to_owned());
        }
        u16::try_from(place).unwrap_or(u16::MAX)
    }
}

/// Converts a duration. Invalid durations are replaced by 0.
fn seconds(of: f64) -> f32 {
    if of.is_finite() { of.max(0.0) as f32 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(step: u64, loss: f32) -> TrainedStep {
        TrainedStep {
            epoch: 1,
            step,
            loss,
            split: "a".into(),
            waited_seconds: f64::NAN,
            computed_seconds: 1.0,
            bytes_received: 0,
            rows: 8,
            cached_rows: 0,
        }
    }

    #[test]
    fn of_a_long_job_evenly_spread_steps_are_kept() {
        let mut steps = RecordedSteps {
            limit: 64,
            ..RecordedSteps::default()
        };
        for step in 1..=1000 {
            steps.add(0.0, &event(step, 1.0));
        }
        let numbers: Vec<u64> = steps.sampled().iter().map(|step| step.step).collect();
        assert_eq!(steps.stride(), 16);
        assert_eq!(numbers, (1..=62).map(|i| i * 16).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_that_defy_thinning_are_bounded_too() {
        let mut steps = RecordedSteps {
            limit: 4,
            ..RecordedSteps::default()
        };
        for step in (0..64).map(|power| 1_u64 << power) {
            steps.add(0.0, &event(step, 1.0));
        }
        assert!(steps.sampled().len() < 4);
    }

    #[test]
    fn splits_above_the_limit_are_others() {
        let mut steps = RecordedSteps::default();
        for number in 0..SPLITS as u64 + 3 {
            steps.add(
                0.0,
                &TrainedStep {
                    split: format!("cut {number}").as_str().into(),
                    ..event(number + 1, 1.0)
                },
            );
        }
        let names: Vec<&str> = steps.sampled().iter().map(|step| steps.split(step)).collect();
        assert_eq!(names[SPLITS - 1..], ["cut 255", "others", "others", "others"]);
    }

    #[test]
    fn repeated_steps_count_once() {
        let mut steps = RecordedSteps::default();
        for (step, loss) in [(1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0), (3, 5.0)] {
            steps.add(0.0, &event(step, loss));
        }
        let losses: Vec<f32> = steps.sampled().iter().map(|step| step.loss).collect();
        assert_eq!(losses, [9.0, 6.0, 5.0]);
        assert_eq!(steps.sampled().first().unwrap().waited, 0.0);
    }
}
