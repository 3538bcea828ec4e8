use super::files;
use super::steps::RecordedSteps;
use crate::ReportError;
use crate::error::reason;
use crate::markup::bytes;
use frostline_job::{Event, HostState, JobResult, ListedData, LoggedEvent, Notice, Quality, TrainedEpoch};
use std::collections::HashMap;
use std::path::Path;

/// Maximum number of epochs, more than a job reaches within a day.
const EPOCHS: usize = 100_000;
/// Maximum number of moments per kind, and maximum length of texts in characters.
const MOMENTS: usize = 1000;
const LETTERS: usize = 400;
/// Maximum number of bad samples listed by key.
const BAD: usize = 100;
/// Decrease of `at` in seconds that indicates a restart of the job.
const SLACK: f64 = 5.0;

/// Contents of `events.jsonl`.
#[derive(Debug, Default)]
pub(crate) struct RunJournal {
    pub(crate) data: ListedData,
    /// Split and encoding at the start of the job.
    pub(crate) chosen: Option<(String, String)>,
    pub(crate) baseline: Option<Quality>,
    /// Quality of the written model on the test part, with the number of images.
    pub(crate) test: Option<(Quality, usize)>,
    pub(crate) steps: RecordedSteps,
    /// Epochs in ascending order without duplicates.
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) moments: Vec<Moment>,
    /// Number of moments by kind, including omitted ones.
    counts: HashMap<MomentKind, u64>,
    /// Keys and errors of skipped samples.
    pub(crate) bad: Vec<(String, String)>,
    pub(crate) bad_count: u64,
    pub(crate) done: Option<JobResult>,
    /// Seconds from the job's beginning to its last event.
    pub(crate) duration: f64,
    /// Offset added to `at`: the total time of earlier starts, because resumed jobs count from their own
    /// start.
    before: f64,
}

/// A finished epoch.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// Seconds from the start of the job to the end of the epoch.
    pub(crate) at: f64,
    pub(crate) trained: TrainedEpoch,
}

/// An event with a mark on the timeline.
#[derive(Debug)]
pub(crate) struct Moment {
    /// Seconds from the start of the job.
    pub(crate) at: f64,
    pub(crate) kind: MomentKind,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum MomentKind {
    Split,
    Replan,
    Unfreeze,
    #[strum(serialize = "host down")]
    HostDown,
    #[strum(serialize = "host up")]
    HostUp,
    Retry,
    Store,
    Warning,
}

impl RunJournal {
    pub(crate) fn read(file: &Path) -> Result<Self, ReportError> {
        let mut journal = Self::default();
        files::lines(file, |line| {
            let logged = LoggedEvent::parse(line).map_err(|error| reason(&error))?;
            journal.add(logged)
        })?;
        Ok(journal)
    }

    pub(crate) fn count(&self, kind: MomentKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the finished epochs without their times.
    pub(crate) fn trained(&self) -> impl ExactSizeIterator<Item = &TrainedEpoch> + DoubleEndedIterator {
        self.epochs.iter().map(|epoch| &epoch.trained)
    }

    /// Returns the seconds of the job, as stated by its result if there is one.
    pub(crate) fn seconds(&self) -> f64 {
        self.done.as_ref().map_or(self.duration, |done| done.seconds)
    }

    /// Returns the bytes received until now.
    pub(crate) fn received(&self) -> u64 {
        let epochs = self.trained().map(|epoch| epoch.bytes_received).sum();
        self.done.as_ref().map_or(epochs, |done| done.bytes_received)
    }

    /// Returns the fraction of cached features over all epochs. NaN if no features were used.
    pub(crate) fn cached_fraction(&self) -> f64 {
        let cached: u64 = self.trained().map(|epoch| epoch.cached_rows).sum();
        let fetched: u64 = self.trained().map(|epoch| epoch.fetched_rows).sum();
        cached as f64 / (cached + fetched) as f64
    }

    fn add(&mut self, logged: LoggedEvent) -> Result<(), String> {
        let at = logged.at.filter(|at| at.is_finite() && *at >= 0.0);
        let took = match &logged.event {
            Some(Event::Step(step)) => step.waited_seconds + step.computed_seconds,
            _ => 0.0,
        };
        let at = self.clock(at, took);
        let Some(event) = logged.event else {
            return Ok(());
        };
        if let Some((kind, text)) = moment(&event) {
            let count = self.counts.entry(kind).or_default();
            *count += 1;
            if *count <= MOMENTS as u64 {
                let text = text.chars().take(LETTERS).collect();
                self.moments.push(Moment { at, kind, text });
            }
        }
        match event {
            Event::Dataset(data) => self.data = data,
            Event::Baseline { validation, .. } => self.baseline = Some(validation),
            Event::Test { quality, samples, .. } => self.test = Some((quality, samples)),
            Event::Split { split, encoding, .. } => {
                self.chosen = Some((split.to_string(), encoding.to_string()));
            }
            Event::BadSample { key, message } => {
                self.bad_count += 1;
                if self.bad.len() < BAD {
                    self.bad.push((key, message));
                }
            }
            Event::Step(step) => self.steps.add(at, &step),
            Event::Epoch(trained) => return self.add_epoch(Epoch { at, trained }),
            Event::Done(done) => self.done = Some(done),
            _ => {}
        }
        Ok(())
    }

    /// Converts `at` to seconds since the first start of the job. Results never decrease. An event without a
    /// time is assumed to follow the previous event after `took` seconds.
    fn clock(&mut self, at: Option<f64>, took: f64) -> f64 {
        let took = if took.is_finite() { took.max(0.0) } else { 0.0 };
        let own = at.map_or(self.duration + took, |at| at + self.before);
        if own + SLACK < self.duration {
            let missing = self.duration - self.before;
            self.before += missing;
            self.duration = own + missing;
        } else {
            self.duration = self.duration.max(own);
        }
        self.duration
    }

    /// Adds an epoch, which replaces earlier results of the same and later epochs.
    fn add_epoch(&mut self, epoch: Epoch) -> Result<(), String> {
        let number = epoch.trained.epoch;
        let kept = self.epochs.partition_point(|known| known.trained.epoch < number);
        self.epochs.truncate(kept);
        if self.epochs.len() == EPOCHS {
            return Err(format!("more than {EPOCHS} epochs"));
        }
        self.epochs.push(epoch);
        Ok(())
    }
}

/// Returns the mark on the timeline for an event.
fn moment(event: &Event) -> Option<(MomentKind, String)> {
    Some(match event {
        Event::Split {
            split,
            encoding,
            reason,
            ..
        } => (
            MomentKind::Split,
            format!("split {split} in {encoding}: {reason}"),
        ),
        Event::Int8 {
            used: true, cosine, ..
        } => {
            let text = format!("frozen layers in int8: cosine similarity {cosine:.4} to f32");
            (MomentKind::Split, text)
        }
        Event::Replan {
            from,
            to,
            encoding,
            reason,
            ..
        } => {
            let text = format!("split {from} to {to} in {encoding}: {reason}");
            (MomentKind::Replan, text)
        }
        Event::Unfreeze { epoch, freeze } => {
            let text = format!("training the layers after {freeze} from epoch {epoch} on");
            (MomentKind::Unfreeze, text)
        }
        Event::Warning { message } => (MomentKind::Warning, message.clone()),
        Event::Features {
            kept,
            rows,
            bytes: needed,
            ..
        } => {
            let text = format!(
                "{kept} of {rows} features cached; all need {}",
                bytes(*needed as f64)
            );
            (MomentKind::Store, text)
        }
        Event::Notice(Notice::Host {
            host, state, reason, ..
        }) => match state {
            HostState::Up => (MomentKind::HostUp, format!("{host} is up again: {reason}")),
            HostState::Down => (MomentKind::HostDown, format!("{host} is down: {reason}")),
        },
        Event::Notice(Notice::Retry {
            host, lost, reason, ..
        }) => {
            let text = format!("retrying {lost} images of {host}: {reason}");
            (MomentKind::Retry, text)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(lines: &[&str]) -> RunJournal {
        let mut journal = RunJournal::default();
        for line in lines {
            journal.add(LoggedEvent::parse(line.as_bytes()).unwrap()).unwrap();
        }
        journal
    }

    #[test]
    fn a_job_started_again_goes_on_in_time() {
        let said = |at: u32| format!(r#"{{"event":"warning","message":"m","at":{at}}}"#);
        let lines = [10, 100, 1, 7].map(said);
        let journal = journal(&lines.each_ref().map(String::as_str));
        let times: Vec<f64> = journal.moments.iter().map(|moment| moment.at).collect();
        assert_eq!(times, [10.0, 100.0, 101.0, 107.0]);
    }

    #[test]
    fn epochs_done_again_count_once_and_figures_are_found_by_their_prefix() {
        let epoch = |number: u32, accuracy: &str| {
            format!(
                r#"{{"event":"epoch","epoch":{number},"loss":null,"validation_accuracy":{accuracy},"validation_bytes_received":3,
                "bytes_received":9,"seconds":1.0,"waited_seconds":0.5,"split":"none","skipped":0,"cached_rows":4,"fetched_rows":0}}"#
            )
        };
        let lines = [epoch(1, "0.5"), epoch(2, "0.6"), epoch(2, "null")];
        let journal = journal(&lines.each_ref().map(String::as_str));
        assert_eq!(journal.epochs.len(), 2);
        let last = journal.trained().last().unwrap();
        assert!(last.loss.is_nan() && last.cached_rows == 4);
        let figures = last.validation.figures();
        assert!(
            matches!(figures.as_slice(), [("accuracy", figure)] if figure.is_nan()),
            "{figures:?}"
        );
    }

    #[test]
    fn moments_are_bounded_and_counted() {
        let line = r#"{"event":"retry","host":"h","lost":1,"attempt":1,"wait_seconds":0,"reason":"r"}"#;
        let journal = journal(&vec![line; MOMENTS + 5]);
        assert_eq!(journal.moments.len(), MOMENTS);
        assert_eq!(journal.count(MomentKind::Retry), MOMENTS as u64 + 5);
    }

    #[test]
    fn images_that_are_asked_for_again_are_not_called_lost() {
        let line = r#"{"event":"retry","host":"h","lost":32,"attempt":1,"wait_seconds":2,"reason":"h answered 429: busy"}"#;
        let journal = journal(&[line]);
        let text = &journal.moments.first().unwrap().text;
        assert_eq!(text, "retrying 32 images of h: h answered 429: busy");
    }

    #[test]
    fn cached_features_are_on_the_timeline() {
        let features = Event::Features {
            kept: 3,
            rows: 9,
            bytes: 4096,
            limit: 1 << 20,
            folder: "features".into(),
        };
        let journal = journal(&[&serde_json::to_string(&features).unwrap()]);
        assert_eq!(journal.count(MomentKind::Store), 1);
        assert!(journal.moments[0].text.starts_with("3 of 9 features"));
    }
}
