//! Progress of a job, including rate, bottleneck and remaining time. Does not read the clock, because events
//! contain all durations.

use frostline_trainer::TrainedStep;
use frostline_wire::Split;

/// Number of recent steps for averages. Enough to smooth batches that arrive in the same response, but few
/// enough to follow changes within an epoch.
const RECENT: u32 = 16;

/// Minimum number of steps for an average, because batches that were fetched ahead arrive in bursts.
const ENOUGH: u32 = 3;

/// Fraction of time spent waiting above which a job is bound by data. Batches are fetched during training, so
/// a job that is bound by training waits very little.
const WAITING: f64 = 0.1;

/// Returns true if all features of the batch were cached.
fn is_kept(step: &TrainedStep) -> bool {
    step.cached_rows == step.rows
}

/// Average over recent steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct StepPace {
    /// Number of steps, up to [`RECENT`].
    steps: u32,
    rows: f64,
    waited: f64,
    computed: f64,
}

impl StepPace {
    fn add(&mut self, step: &TrainedStep) {
        self.steps = (self.steps + 1).min(RECENT);
        let weight = 1.0 / f64::from(self.steps);
        for (mean, value) in [
            (&mut self.rows, step.rows as f64),
            (&mut self.waited, step.waited_seconds),
            (&mut self.computed, step.computed_seconds),
        ] {
            *mean += (value - *mean) * weight;
        }
    }

    /// Returns the average, or `None` before the minimum number of steps.
    fn known(&self) -> Option<Self> {
        Some(*self).filter(|pace| pace.steps >= ENOUGH)
    }

    fn seconds(&self) -> f64 {
        self.waited + self.computed
    }
}

/// Bottleneck of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum JobBottleneck {
    Data,
    Training,
}

/// Progress of a job, derived from the completed steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobProgress {
    epochs: u32,
    steps_per_epoch: u64,
    train: u64,
    validation: u64,
    /// First epoch in which the current layers are trained, starting at 1.
    phase: u32,
    /// Number of epochs since `phase` that fetch features until all are cached. `None` if no training
    /// features are cached.
    fetching: Option<u32>,
    /// Current epoch, or 0 before the first step.
    epoch: u32,
    /// Number of completed steps in the current epoch, including steps from before the run was resumed.
    done: u64,
    /// Number of steps that this process executed in the current epoch.
    executed_steps: u64,
    /// Number of executed steps in which all features were cached.
    cached_steps: u64,
    /// Number of rows in the executed steps.
    rows: u64,
    /// Number of rows with cached features in the executed steps.
    cached_rows: u64,
    /// Duration of the executed steps in seconds.
    seconds: f64,
    /// Seconds from the last step of an epoch to the next epoch.
    between: Option<f64>,
    /// True after the first step, which is not representative because everything is loaded.
    warm: bool,
    /// Average over steps with the same source of features as the last step.
    recent: StepPace,
    fetched: StepPace,
    cached_pace: StepPace,
}

impl JobProgress {
    /// Creates the progress of a job with the given numbers of epochs, steps per epoch, training images and
    /// validation images.
    pub(crate) fn new(epochs: u32, steps_per_epoch: u64, train: u64, validation: u64) -> Self {
        Self {
            epochs,
            steps_per_epoch,
            train,
            validation,
            phase: 1,
            ..Self::default()
        }
    }

    /// Sets the number of cached features (`kept`) and the number of features that can be cached (`rows`).
    pub(crate) fn keeps(&mut self, kept: u64, rows: u64) {
        let views = rows.saturating_sub(self.validation).div_ceil(self.train.max(1));
        let epochs = if kept >= rows { 0 } else { views };
        self.fetching = (views > 0).then(|| u32::try_from(epochs).unwrap_or(u32::MAX));
    }

    /// Sets the duration of the initial validation.
    pub(crate) fn validated(&mut self, seconds: f64) {
        // With a feature cache, later validations use cached features and need very little time.
        self.between = self.fetching.is_none().then_some(seconds);
    }

    /// Starts training of more layers at this epoch.
    pub(crate) fn unfreeze(&mut self, epoch: u32) {
        self.phase = epoch;
        (self.recent, self.fetched, self.cached_pace) = Default::default();
    }

    pub(crate) fn step(&mut self, step: &TrainedStep) {
        if step.epoch != self.epoch {
            self.enter(step);
        }
        self.done += 1;
        self.executed_steps += 1;
        self.cached_steps += u64::from(is_kept(step));
        self.rows += step.rows;
        self.cached_rows += step.cached_rows;
        self.seconds += step.waited_seconds + step.computed_seconds;
        if self.warm {
            self.recent.add(step);
            let of_kind = if is_kept(step) {
                &mut self.cached_pace
            } else {
                &mut self.fetched
            };
            of_kind.add(step);
        }
        self.warm = true;
    }

    /// Starts the epoch of `step`. The first epoch may be resumed in the middle.
    fn enter(&mut self, step: &TrainedStep) {
        let before = u64::from(step.epoch.saturating_sub(1)) * self.steps_per_epoch;
        self.done = match self.epoch {
            0 => step.step.saturating_sub(1).saturating_sub(before),
            _ => 0,
        };
        let was_kept = self.cached_steps == self.executed_steps;
        if was_kept != is_kept(step) {
            self.recent = StepPace::default();
        }
        self.epoch = step.epoch;
        (
            self.executed_steps,
            self.cached_steps,
            self.rows,
            self.cached_rows,
        ) = (0, 0, 0, 0);
        self.seconds = 0.0;
    }

    /// Ends the current epoch. `seconds` includes validation.
    pub(crate) fn ended(&mut self, seconds: f64) {
        self.between = Some((seconds - self.seconds).max(0.0));
    }

    /// Returns the number of completed steps of the current epoch, and the number of steps per epoch.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.done, self.steps_per_epoch.max(self.done))
    }

    pub(crate) fn images_per_second(&self) -> Option<f64> {
        let pace = self.recent.known()?;
        let seconds = Some(pace.seconds()).filter(|seconds| *seconds > 0.0);
        seconds.map(|seconds| pace.rows / seconds)
    }

    pub(crate) fn bound(&self) -> Option<JobBottleneck> {
        let pace = self.recent.known()?;
        Some(if pace.waited > WAITING * pace.seconds() {
            JobBottleneck::Data
        } else {
            JobBottleneck::Training
        })
    }

    /// Returns the fraction of cached features in the current epoch, or `None` if no features are cached.
    pub(crate) fn cached_fraction(&self) -> Option<f64> {
        (self.fetching.is_some() && self.rows > 0).then(|| self.cached_rows as f64 / self.rows as f64)
    }

    /// Estimates the remaining time in seconds until the end of the last epoch.
    pub(crate) fn seconds_left(&self) -> Option<f64> {
        let fetched = self.fetched.known();
        // Use the computation time until a step with cached features was measured, because such steps wait
        // very little.
        let bounded = fetched.map(|pace| pace.computed);
        let kept = self.cached_pace.known().map(|pace| pace.seconds()).or(bounded)?;
        let fetched = fetched.map_or(kept, |pace| pace.seconds());
        let share = self.cached_steps as f64 / self.executed_steps.max(1) as f64;
        let now = share * kept + (1.0 - share) * fetched;
        // If features are still fetched when they should be cached, expect the same for later epochs. For
        // example, the disk may be full.
        let [first, then] = match self.fetching {
            Some(epochs) if self.epoch < self.phase.saturating_add(epochs) => [fetched, kept],
            Some(_) => [now, now],
            None => [fetched, fetched],
        };
        let epochs = self.epochs.saturating_sub(self.epoch);
        let until = self
            .fetching
            .map_or(0, |epochs| self.phase.saturating_add(epochs));
        let fetching = until.saturating_sub(self.epoch + 1).min(epochs);
        let steps = self.steps_per_epoch;
        let left = self.steps_per_epoch.saturating_sub(self.done);
        let first_steps = (u64::from(fetching) * steps) as f64;
        let later_steps = (u64::from(epochs - fetching) * steps) as f64;
        let between = self.between.unwrap_or(0.0) * f64::from(epochs + 1);
        Some(left as f64 * now + first_steps * first + later_steps * then + between)
    }

    /// Formats the current epoch and the number of epochs, such as `epoch 3/20`.
    pub(crate) fn epoch(&self) -> String {
        format!("epoch {}/{}", self.epoch.max(1), self.epochs)
    }

    /// Describes the progress after a step.
    pub(crate) fn description(&self, loss: f32, split: &Split) -> String {
        let rate = self.images_per_second().map(|rate| match rate {
            ..10.0 => format!("{rate:.1} images/s"),
            _ => format!("{rate:.0} images/s"),
        });
        let bound = self.bound().map(|bound| format!("bound by {bound}"));
        // Rounded down, because 99.6 % is not everything.
        let kept = self
            .cached_fraction()
            .map(|share| format!("cached {:.0} %", (share * 100.0).floor()));
        let rest = [Some(format!("split {split}")), Some(format!("loss {loss:.4}"))];
        let words: Vec<String> = [rate, bound, kept].into_iter().chain(rest).flatten().collect();
        words.join("  ")
    }

    /// Formats the remaining time, such as `ETA 2:10`. Returns an empty string if the time is unknown.
    pub(crate) fn eta(&self) -> String {
        let Some(seconds) = self.seconds_left() else {
            return String::new();
        };
        let seconds = seconds.ceil() as u64;
        let hours = seconds / 3600;
        let minutes = seconds / 60 % 60;
        let seconds = seconds % 60;
        match hours {
            0 => format!("ETA {minutes}:{seconds:02}"),
            _ => format!("ETA {hours}:{minutes:02}:{seconds:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the progress of a job with 5 epochs of 10 steps with 8 images, and 20 validation images.
    fn job() -> JobProgress {
        JobProgress::new(5, 10, 80, 20)
    }

    /// Adds steps with 8 rows. Either all or no features are cached.
    fn steps(
        progress: &mut JobProgress,
        epoch: u32,
        range: std::ops::Range<u64>,
        kept: bool,
        took: (f64, f64),
    ) {
        for index in range {
            progress.step(&TrainedStep {
                epoch,
                step: u64::from(epoch - 1) * 10 + index + 1,
                rows: 8,
                cached_rows: if kept { 8 } else { 0 },
                waited_seconds: took.0,
                computed_seconds: took.1,
                loss: 0.0,
                split: Split::None,
                bytes_received: 0,
            });
        }
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-9)
    }

    #[test]
    fn nothing_is_said_until_it_means_something() {
        let mut progress = job();
        // Loading is slow at the first step.
        steps(&mut progress, 1, 0..1, false, (30.0, 9.0));
        steps(&mut progress, 1, 1..3, false, (0.75, 0.25));
        assert_eq!(progress.images_per_second(), None);
        assert_eq!((progress.bound(), progress.seconds_left()), (None, None));
        assert_eq!(
            progress.description(0.5, &Split::from("cut")),
            "split cut  loss 0.5000"
        );
        assert_eq!(progress.eta(), "");
        steps(&mut progress, 1, 3..4, false, (0.75, 0.25));
        assert!(near(progress.images_per_second(), 8.0));
        assert_eq!(progress.bound(), Some(JobBottleneck::Data));
        assert_eq!(progress.position(), (4, 10));
        assert!(near(progress.seconds_left(), 46.0));
        assert_eq!(progress.eta(), "ETA 0:46");
        assert_eq!(
            progress.description(0.5, &Split::from("cut")),
            "8.0 images/s  bound by data  split cut  loss 0.5000"
        );
    }

    #[test]
    fn time_between_epochs_counts_for_remaining_epochs() {
        let mut progress = job();
        progress.validated(4.0);
        steps(&mut progress, 1, 0..10, false, (0.0, 1.0));
        assert!(near(progress.seconds_left(), 40.0 + 5.0 * 4.0));
        assert_eq!(progress.bound(), Some(JobBottleneck::Training));
        progress.ended(12.5);
        steps(&mut progress, 2, 0..5, false, (0.0, 1.0));
        assert!(near(progress.seconds_left(), 35.0 + 4.0 * 2.5));
        steps(&mut progress, 5, 0..10, false, (0.0, 1.0));
        assert!(near(progress.seconds_left(), 2.5));
    }

    #[test]
    fn later_epochs_count_as_kept_ones_do() {
        let mut progress = job();
        progress.keeps(0, 100);
        progress.validated(4.0);
        steps(&mut progress, 1, 0..5, false, (0.75, 0.25));
        // No step with cached features was measured yet, so the computation time is used.
        assert!(near(progress.seconds_left(), 5.0 + 40.0 * 0.25));
        assert!(near(progress.cached_fraction(), 0.0));
        steps(&mut progress, 1, 5..10, false, (0.75, 0.25));
        progress.ended(10.0);
        steps(&mut progress, 2, 0..3, true, (0.0, 0.125));
        assert!(near(progress.images_per_second(), 64.0));
        assert_eq!(progress.bound(), Some(JobBottleneck::Training));
        assert!(near(progress.seconds_left(), 37.0 * 0.125));
        assert_eq!(
            progress.description(0.25, &Split::None),
            "64 images/s  bound by training  cached 100 %  split none  loss 0.2500"
        );
    }

    #[test]
    fn as_many_epochs_fetch_as_there_are_views() {
        let mut progress = job();
        progress.keeps(0, 3 * 80 + 20);
        steps(&mut progress, 1, 0..10, false, (0.75, 0.25));
        assert!(near(progress.seconds_left(), 20.0 + 20.0 * 0.25));
        steps(&mut progress, 3, 0..10, false, (0.75, 0.25));
        assert!(near(progress.seconds_left(), 20.0 * 0.25));
    }

    #[test]
    fn rows_that_ought_to_be_kept_and_are_not_are_fetched_later_too() {
        let mut progress = job();
        progress.keeps(0, 100);
        steps(&mut progress, 1, 0..10, false, (0.75, 0.25));
        steps(&mut progress, 2, 0..5, true, (0.0, 0.25));
        steps(&mut progress, 2, 5..10, false, (0.75, 0.25));
        assert!(near(progress.cached_fraction(), 0.5));
        assert!(near(progress.seconds_left(), 30.0 * (0.5 * 0.25 + 0.5)));
    }

    #[test]
    fn rows_of_validation_alone_make_no_epoch_kept() {
        let mut progress = job();
        progress.keeps(0, 20);
        steps(&mut progress, 1, 0..5, false, (0.75, 0.25));
        assert!(near(progress.seconds_left(), 45.0));
        assert_eq!(progress.cached_fraction(), None);
    }

    #[test]
    fn a_job_that_goes_on_does_so_within_its_epoch() {
        let mut progress = job();
        progress.keeps(100, 100);
        steps(&mut progress, 4, 6..10, true, (0.0, 0.5));
        assert_eq!(
            (progress.position(), progress.epoch()),
            ((10, 10), "epoch 4/5".to_owned())
        );
        assert!(near(progress.seconds_left(), 5.0));
    }

    #[test]
    fn rates_follow_a_change_and_start_anew_with_other_layers() {
        let mut progress = job();
        steps(&mut progress, 1, 0..10, false, (0.0, 1.0));
        steps(&mut progress, 2, 0..10, false, (9.0, 1.0));
        let rate = progress.images_per_second().unwrap();
        assert!(rate < 2.0, "{rate}");
        progress.unfreeze(3);
        assert_eq!(
            (progress.images_per_second(), progress.seconds_left()),
            (None, None)
        );
    }

    #[test]
    fn long_jobs_say_hours() {
        let mut progress = JobProgress::new(100, 10, 80, 20);
        steps(&mut progress, 1, 0..10, false, (0.0, 10.0));
        assert_eq!(progress.eta(), "ETA 2:45:00");
    }
}
