//! How a job gets on: its rate, what bounds it, and when it ends. Reads no clock: steps and epochs say what they took.

use frostline_wire::Split;

/// Steps that a rate is of. Enough to even out batches that came in one answer, few enough to follow a change within an epoch.
const RECENT: u32 = 16;

/// Steps before their rate says something: those fetched ahead come in bursts.
const ENOUGH: u32 = 3;

/// A job that waits for more of its time than this is bound by its data: batches come while others train, so that one bound by training waits
/// for next to none.
const WAITING: f64 = 0.1;

/// A step that was trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trained {
    /// From 1.
    pub(crate) epoch: u32,
    /// From 1, over the whole job.
    pub(crate) step: u64,
    pub(crate) rows: u64,
    /// Of these, rows that were kept before.
    pub(crate) kept_rows: u64,
    /// Seconds it waited for its batch.
    pub(crate) waited: f64,
    /// Seconds it computed.
    pub(crate) computed: f64,
}

impl Trained {
    fn is_kept(&self) -> bool {
        self.kept_rows == self.rows
    }
}

/// What recent steps took in the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Pace {
    /// [`RECENT`] at most.
    steps: u32,
    rows: f64,
    waited: f64,
    computed: f64,
}

impl Pace {
    fn add(&mut self, step: &Trained) {
        self.steps = (self.steps + 1).min(RECENT);
        let weight = 1.0 / f64::from(self.steps);
        for (mean, value) in [
            (&mut self.rows, step.rows as f64),
            (&mut self.waited, step.waited),
            (&mut self.computed, step.computed),
        ] {
            *mean += (value - *mean) * weight;
        }
    }

    /// Of a step; `None` until there were enough.
    fn known(&self) -> Option<Self> {
        Some(*self).filter(|pace| pace.steps >= ENOUGH)
    }

    fn seconds(&self) -> f64 {
        self.waited + self.computed
    }
}

/// What bounds a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Bound {
    Data,
    Training,
}

/// What the last steps of a job say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headway {
    epochs: u32,
    steps_per_epoch: u64,
    train: u64,
    validation: u64,
    /// The first epoch of those that train the same layers, from 1.
    phase: u32,
    /// In how many epochs of the phase rows are fetched before all are kept; `None` where none are.
    fetching: Option<u32>,
    /// The epoch under way, 0 before the first.
    epoch: u32,
    /// Its steps that are behind it.
    done: u64,
    /// Its steps that were seen, and those of them whose rows were all kept.
    seen: u64,
    from_kept: u64,
    /// Its rows that were seen, and those of them that were kept.
    rows: u64,
    kept_rows: u64,
    /// Seconds of its steps that were seen.
    seconds: f64,
    /// Seconds from the last step of an epoch to the first of the next.
    between: Option<f64>,
    /// Whether the first step is behind it, which waits for everything to be loaded and says nothing.
    warm: bool,
    /// Of steps with rows from where the last one's were.
    recent: Pace,
    fetched: Pace,
    kept: Pace,
}

impl Headway {
    /// Of a job with so many epochs, steps in each, and samples.
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

    /// Of the `rows` that can be kept, `kept` are there.
    pub(crate) fn keeps(&mut self, kept: u64, rows: u64) {
        let views = rows.saturating_sub(self.validation).div_ceil(self.train.max(1));
        let epochs = if kept >= rows { 0 } else { views };
        self.fetching = (views > 0).then(|| u32::try_from(epochs).unwrap_or(u32::MAX));
    }

    /// Validation before the first step took so long.
    pub(crate) fn validated(&mut self, seconds: f64) {
        // Later ones find their rows kept, and take next to nothing.
        self.between = self.fetching.is_none().then_some(seconds);
    }

    /// From this epoch on, more layers are trained.
    pub(crate) fn unfreeze(&mut self, epoch: u32) {
        self.phase = epoch;
        (self.recent, self.fetched, self.kept) = Default::default();
    }

    pub(crate) fn step(&mut self, step: &Trained) {
        if step.epoch != self.epoch {
            self.enter(step);
        }
        self.done += 1;
        self.seen += 1;
        self.from_kept += u64::from(step.is_kept());
        self.rows += step.rows;
        self.kept_rows += step.kept_rows;
        self.seconds += step.waited + step.computed;
        if self.warm {
            self.recent.add(step);
            let of_kind = if step.is_kept() {
                &mut self.kept
            } else {
                &mut self.fetched
            };
            of_kind.add(step);
        }
        self.warm = true;
    }

    /// Begins the epoch of `step`. That of the first step may have been gone on with.
    fn enter(&mut self, step: &Trained) {
        let before = u64::from(step.epoch.saturating_sub(1)) * self.steps_per_epoch;
        self.done = match self.epoch {
            0 => step.step.saturating_sub(1).saturating_sub(before),
            _ => 0,
        };
        let was_kept = self.from_kept == self.seen;
        if was_kept != step.is_kept() {
            self.recent = Pace::default();
        }
        self.epoch = step.epoch;
        (self.seen, self.from_kept, self.rows, self.kept_rows) = (0, 0, 0, 0);
        self.seconds = 0.0;
    }

    /// The epoch under way ended; it took so long with its validation.
    pub(crate) fn ended(&mut self, seconds: f64) {
        self.between = Some((seconds - self.seconds).max(0.0));
    }

    /// Steps of the epoch under way that are behind it, and its steps.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.done, self.steps_per_epoch.max(self.done))
    }

    pub(crate) fn images_per_second(&self) -> Option<f64> {
        let pace = self.recent.known()?;
        let seconds = Some(pace.seconds()).filter(|seconds| *seconds > 0.0);
        seconds.map(|seconds| pace.rows / seconds)
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        let pace = self.recent.known()?;
        Some(if pace.waited > WAITING * pace.seconds() {
            Bound::Data
        } else {
            Bound::Training
        })
    }

    /// Of the rows of the epoch under way, the share that was kept; `None` where none can be.
    pub(crate) fn kept_share(&self) -> Option<f64> {
        (self.fetching.is_some() && self.rows > 0).then(|| self.kept_rows as f64 / self.rows as f64)
    }

    /// Seconds until the last epoch has ended.
    pub(crate) fn seconds_left(&self) -> Option<f64> {
        let fetched = self.fetched.known();
        // Until steps with kept rows were seen: these wait for next to nothing.
        let bounded = fetched.map(|pace| pace.computed);
        let kept = self.kept.known().map(|pace| pace.seconds()).or(bounded)?;
        let fetched = fetched.map_or(kept, |pace| pace.seconds());
        let share = self.from_kept as f64 / self.seen.max(1) as f64;
        let now = share * kept + (1.0 - share) * fetched;
        // Rows that are still fetched when they should be kept will be in later epochs too: disks get full.
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
        let (steps, left) = (
            self.steps_per_epoch,
            self.steps_per_epoch.saturating_sub(self.done),
        );
        let of = |epochs: u32, step: f64| (u64::from(epochs) * steps) as f64 * step;
        let between = self.between.unwrap_or(0.0) * f64::from(epochs + 1);
        Some(left as f64 * now + of(fetching, first) + of(epochs - fetching, then) + between)
    }

    /// `epoch 3/20`
    pub(crate) fn epoch(&self) -> String {
        format!("epoch {}/{}", self.epoch.max(1), self.epochs)
    }

    /// What there is to say of it, after a step with this loss at this split.
    pub(crate) fn words(&self, loss: f32, split: &Split) -> String {
        let rate = self.images_per_second().map(|rate| match rate {
            ..10.0 => format!("{rate:.1} images/s"),
            _ => format!("{rate:.0} images/s"),
        });
        let bound = self.bound().map(|bound| format!("bound by {bound}"));
        // 99.6 per cent are not all of them.
        let kept = self
            .kept_share()
            .map(|share| format!("kept {:.0} %", (share * 100.0).floor()));
        let rest = [Some(format!("split {split}")), Some(format!("loss {loss:.4}"))];
        let words: Vec<String> = [rate, bound, kept].into_iter().chain(rest).flatten().collect();
        words.join("  ")
    }

    /// `ETA 2:10`, or nothing as long as that is not known.
    pub(crate) fn eta(&self) -> String {
        let Some(seconds) = self.seconds_left() else {
            return String::new();
        };
        let seconds = seconds.ceil() as u64;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        match hours {
            0 => format!("ETA {minutes}:{seconds:02}"),
            _ => format!("ETA {hours}:{minutes:02}:{seconds:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of 5 epochs of 10 steps of 8 images, and 20 to validate with.
    fn job() -> Headway {
        Headway::new(5, 10, 80, 20)
    }

    /// Steps of an epoch from one on, each of 8 rows; all kept or none.
    fn steps(headway: &mut Headway, epoch: u32, range: std::ops::Range<u64>, kept: bool, took: (f64, f64)) {
        for index in range {
            headway.step(&Trained {
                epoch,
                step: u64::from(epoch - 1) * 10 + index + 1,
                rows: 8,
                kept_rows: if kept { 8 } else { 0 },
                waited: took.0,
                computed: took.1,
            });
        }
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-9)
    }

    #[test]
    fn nothing_is_said_until_it_means_something() {
        let mut headway = job();
        // The first step waits for everything to be loaded.
        steps(&mut headway, 1, 0..1, false, (30.0, 9.0));
        steps(&mut headway, 1, 1..3, false, (0.75, 0.25));
        assert_eq!(headway.images_per_second(), None);
        assert_eq!((headway.bound(), headway.seconds_left()), (None, None));
        assert_eq!(headway.words(0.5, &Split::from("cut")), "split cut  loss 0.5000");
        assert_eq!(headway.eta(), "");
        steps(&mut headway, 1, 3..4, false, (0.75, 0.25));
        assert!(near(headway.images_per_second(), 8.0));
        assert_eq!(headway.bound(), Some(Bound::Data));
        assert_eq!(headway.position(), (4, 10));
        assert!(near(headway.seconds_left(), 46.0));
        assert_eq!(headway.eta(), "ETA 0:46");
        assert_eq!(
            headway.words(0.5, &Split::from("cut")),
            "8.0 images/s  bound by data  split cut  loss 0.5000"
        );
    }

    #[test]
    fn what_lies_between_epochs_counts_for_each_that_is_left() {
        let mut headway = job();
        headway.validated(4.0);
        steps(&mut headway, 1, 0..10, false, (0.0, 1.0));
        assert!(near(headway.seconds_left(), 40.0 + 5.0 * 4.0));
        assert_eq!(headway.bound(), Some(Bound::Training));
        headway.ended(12.5);
        steps(&mut headway, 2, 0..5, false, (0.0, 1.0));
        assert!(near(headway.seconds_left(), 35.0 + 4.0 * 2.5));
        steps(&mut headway, 5, 0..10, false, (0.0, 1.0));
        assert!(near(headway.seconds_left(), 2.5));
    }

    #[test]
    fn later_epochs_count_as_kept_ones_do() {
        let mut headway = job();
        headway.keeps(0, 100);
        headway.validated(4.0);
        steps(&mut headway, 1, 0..5, false, (0.75, 0.25));
        // Until one was seen, as what steps compute.
        assert!(near(headway.seconds_left(), 5.0 + 40.0 * 0.25));
        assert!(near(headway.kept_share(), 0.0));
        steps(&mut headway, 1, 5..10, false, (0.75, 0.25));
        headway.ended(10.0);
        steps(&mut headway, 2, 0..3, true, (0.0, 0.125));
        assert!(near(headway.images_per_second(), 64.0));
        assert_eq!(headway.bound(), Some(Bound::Training));
        assert!(near(headway.seconds_left(), 37.0 * 0.125));
        assert_eq!(
            headway.words(0.25, &Split::None),
            "64 images/s  bound by training  kept 100 %  split none  loss 0.2500"
        );
    }

    #[test]
    fn as_many_epochs_fetch_as_there_are_views() {
        let mut headway = job();
        headway.keeps(0, 3 * 80 + 20);
        steps(&mut headway, 1, 0..10, false, (0.75, 0.25));
        assert!(near(headway.seconds_left(), 20.0 + 20.0 * 0.25));
        steps(&mut headway, 3, 0..10, false, (0.75, 0.25));
        assert!(near(headway.seconds_left(), 20.0 * 0.25));
    }

    #[test]
    fn rows_that_ought_to_be_kept_and_are_not_are_fetched_later_too() {
        let mut headway = job();
        headway.keeps(0, 100);
        steps(&mut headway, 1, 0..10, false, (0.75, 0.25));
        steps(&mut headway, 2, 0..5, true, (0.0, 0.25));
        steps(&mut headway, 2, 5..10, false, (0.75, 0.25));
        assert!(near(headway.kept_share(), 0.5));
        assert!(near(headway.seconds_left(), 30.0 * (0.5 * 0.25 + 0.5)));
    }

    #[test]
    fn rows_of_validation_alone_make_no_epoch_kept() {
        let mut headway = job();
        headway.keeps(0, 20);
        steps(&mut headway, 1, 0..5, false, (0.75, 0.25));
        assert!(near(headway.seconds_left(), 45.0));
        assert_eq!(headway.kept_share(), None);
    }

    #[test]
    fn a_job_that_goes_on_does_so_within_its_epoch() {
        let mut headway = job();
        headway.keeps(100, 100);
        steps(&mut headway, 4, 6..10, true, (0.0, 0.5));
        assert_eq!(
            (headway.position(), headway.epoch()),
            ((10, 10), "epoch 4/5".to_owned())
        );
        assert!(near(headway.seconds_left(), 5.0));
    }

    #[test]
    fn rates_follow_a_change_and_start_anew_with_other_layers() {
        let mut headway = job();
        steps(&mut headway, 1, 0..10, false, (0.0, 1.0));
        steps(&mut headway, 2, 0..10, false, (9.0, 1.0));
        let rate = headway.images_per_second().unwrap();
        assert!(rate < 2.0, "{rate}");
        headway.unfreeze(3);
        assert_eq!(
            (headway.images_per_second(), headway.seconds_left()),
            (None, None)
        );
    }

    #[test]
    fn long_jobs_say_hours() {
        let mut headway = Headway::new(100, 10, 80, 20);
        steps(&mut headway, 1, 0..10, false, (0.0, 10.0));
        assert_eq!(headway.eta(), "ETA 2:45:00");
    }
}
