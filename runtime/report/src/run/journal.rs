use super::files;
use super::steps::{Steps, TrainedStep};
use crate::ReportError;
use crate::error::reason;
use crate::markup::bytes;
use frostline_job::{Event, HostState, LoggedEvent, Notice, Quality, Received, Task};
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
pub(crate) struct Journal {
    pub(crate) dataset: Dataset,
    pub(crate) chosen: Option<ChosenSplit>,
    pub(crate) baseline: Option<Quality>,
    /// Quality of the written model on the test part, with the number of images.
    pub(crate) test: Option<(Quality, usize)>,
    pub(crate) steps: Steps,
    /// Epochs in ascending order without duplicates.
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) moments: Vec<Moment>,
    /// Number of moments by kind, including omitted ones.
    counts: [u64; KINDS.len()],
    pub(crate) bad: Vec<BadSample>,
    pub(crate) bad_count: u64,
    pub(crate) done: Option<JobResult>,
    /// Seconds from the job's beginning to its last event.
    pub(crate) duration: f64,
    /// Offset added to `at`: the total time of earlier starts, because resumed jobs count from their own
    /// start.
    before: f64,
}

/// Validation metrics by name, such as `accuracy`.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// Data set as listed by the hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dataset {
    pub(crate) task: Task,
    pub(crate) classes: Vec<String>,
    pub(crate) train: u64,
    pub(crate) validation: u64,
    pub(crate) steps_per_epoch: u64,
}

/// Split at the start of the job.
#[derive(Debug, Clone)]
pub(crate) struct ChosenSplit {
    pub(crate) split: String,
    pub(crate) encoding: String,
}

/// A finished epoch.
#[derive(Debug, Clone)]
pub(crate) struct Epoch {
    /// Seconds from the start of the job to the end of the epoch.
    pub(crate) at: f64,
    pub(crate) epoch: u32,
    pub(crate) loss: f64,
    pub(crate) validation: Quality,
    pub(crate) figures: Figures,
    pub(crate) bytes_received: u64,
    pub(crate) seconds: f64,
    pub(crate) waited_seconds: f64,
    pub(crate) split: String,
    pub(crate) skipped: u64,
    pub(crate) cached_rows: u64,
    pub(crate) fetched_rows: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct BadSample {
    pub(crate) key: String,
    pub(crate) message: String,
}

#[derive(Debug, Clone)]
pub(crate) struct JobResult {
    pub(crate) split: String,
    pub(crate) bytes_received: u64,
    pub(crate) received: Received,
    pub(crate) seconds: f64,
}

/// An event with a mark on the timeline.
#[derive(Debug)]
pub(crate) struct Moment {
    /// Seconds from the start of the job.
    pub(crate) at: f64,
    pub(crate) kind: MomentKind,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MomentKind {
    Split,
    Replan,
    Unfreeze,
    HostDown,
    HostUp,
    Retry,
    Store,
    Warning,
}

const KINDS: [MomentKind; 8] = [
    MomentKind::Split,
    MomentKind::Replan,
    MomentKind::Unfreeze,
    MomentKind::HostDown,
    MomentKind::HostUp,
    MomentKind::Retry,
    MomentKind::Store,
    MomentKind::Warning,
];

impl Journal {
    pub(crate) fn read(file: &Path) -> Result<Self, ReportError> {
        let mut journal = Self::default();
        files::lines(file, |line| {
            let logged = LoggedEvent::parse(line).map_err(|error| reason(&error))?;
            journal.add(logged)
        })?;
        Ok(journal)
    }

    pub(crate) fn count(&self, kind: MomentKind) -> u64 {
        let place = KINDS.iter().position(|known| *known == kind);
        place
            .and_then(|place| self.counts.get(place))
            .copied()
            .unwrap_or(0)
    }

    fn add(&mut self, logged: LoggedEvent) -> Result<(), String> {
        let at = logged.at.filter(|at| at.is_finite() && *at >= 0.0);
        let Some(event) = logged.event else {
            self.clock(at, 0.0);
            return Ok(());
        };
        let took = match &event {
            Event::Step {
                waited_seconds,
                computed_seconds,
                ..
            } => waited_seconds + computed_seconds,
            _ => 0.0,
        };
        let at = self.clock(at, took);
        if let Some((kind, text)) = moment(&event) {
            self.moment(at, kind, &text);
        }
        self.add_event(at, event)
    }

    /// Stores the contents of events that are more than a mark on the timeline.
    fn add_event(&mut self, at: f64, event: Event) -> Result<(), String> {
        match event {
            Event::Dataset {
                task,
                classes,
                train,
                validation,
                steps_per_epoch,
                ..
            } => {
                let [train, validation, steps_per_epoch] =
                    [train, validation, steps_per_epoch].map(|count| count as u64);
                self.dataset = Dataset {
                    task,
                    classes,
                    train,
                    validation,
                    steps_per_epoch,
                };
            }
            Event::Baseline { validation, .. } => self.baseline = Some(validation),
            Event::Test { quality, samples, .. } => self.test = Some((quality, samples)),
            Event::Split { split, encoding, .. } => {
                self.chosen = Some(ChosenSplit {
                    split: split.to_string(),
                    encoding: encoding.to_string(),
                });
            }
            Event::BadSample { key, message } => {
                self.bad_count += 1;
                if self.bad.len() < BAD {
                    self.bad.push(BadSample { key, message });
                }
            }
            Event::Done {
                split,
                bytes_received,
                received,
                seconds,
                ..
            } => {
                self.done = Some(JobResult {
                    split: split.to_string(),
                    bytes_received,
                    received,
                    seconds,
                });
            }
            other => return self.add_training_event(at, other),
        }
        Ok(())
    }

    fn add_training_event(&mut self, at: f64, event: Event) -> Result<(), String> {
        match event {
            Event::Step {
                epoch,
                step,
                loss,
                split,
                waited_seconds,
                computed_seconds,
                bytes_received,
                cached_rows,
                ..
            } => {
                self.steps.add(&TrainedStep {
                    at,
                    epoch,
                    step,
                    loss,
                    split: split.to_string(),
                    waited_seconds,
                    computed_seconds,
                    bytes_received,
                    cached_rows,
                });
                Ok(())
            }
            Event::Epoch {
                epoch,
                loss,
                validation,
                bytes_received,
                seconds,
                waited_seconds,
                split,
                skipped,
                cached_rows,
                fetched_rows,
                ..
            } => self.epoch(Epoch {
                at,
                epoch,
                loss,
                validation,
                figures: validation.figures(),
                bytes_received,
                seconds,
                waited_seconds,
                split: split.to_string(),
                skipped,
                cached_rows,
                fetched_rows,
            }),
            _ => Ok(()),
        }
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

    fn epoch(&mut self, epoch: Epoch) -> Result<(), String> {
        while self.epochs.last().is_some_and(|last| last.epoch >= epoch.epoch) {
            self.epochs.pop();
        }
        if self.epochs.len() == EPOCHS {
            return Err(format!("more than {EPOCHS} epochs"));
        }
        self.epochs.push(epoch);
        Ok(())
    }

    fn moment(&mut self, at: f64, kind: MomentKind, text: &str) {
        let Some(count) = KINDS
            .iter()
            .position(|known| *known == kind)
            .and_then(|place| self.counts.get_mut(place))
        else {
            return;
        };
        *count += 1;
        if *count <= MOMENTS as u64 {
            let text = text.chars().take(LETTERS).collect();
            self.moments.push(Moment { at, kind, text });
        }
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
        Event::Notice(notice) => return notice_moment(notice),
        _ => return None,
    })
}

fn notice_moment(notice: &Notice) -> Option<(MomentKind, String)> {
    match notice {
        Notice::Host {
            host, state, reason, ..
        } => {
            let (kind, word) = match state {
                HostState::Up => (MomentKind::HostUp, "is up again"),
                HostState::Down => (MomentKind::HostDown, "is down"),
            };
            Some((kind, format!("{host} {word}: {reason}")))
        }
        Notice::Retry {
            host, lost, reason, ..
        } => Some((
            MomentKind::Retry,
            format!("retrying {lost} images of {host}: {reason}"),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(lines: &[&str]) -> Journal {
        let mut journal = Journal::default();
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
        let last = journal.epochs.last().unwrap();
        assert!(last.loss.is_nan() && last.cached_rows == 4);
        let [(name, figure)] = last.figures.as_slice() else {
            panic!("{:?}", last.figures)
        };
        assert!(*name == "accuracy" && figure.is_nan());
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
