use super::event::{self, BadSample, Baseline, Chosen, Dataset, Done, Epoch, Event};
use super::files;
use super::steps::Steps;
use crate::ReportError;
use crate::error::reason;
use std::path::Path;

/// Epochs that are kept; more than any job of a day has.
const EPOCHS: usize = 100_000;
/// Moments of a kind that are kept, and the letters of each.
const MOMENTS: usize = 1000;
const LETTERS: usize = 400;
/// Bad samples that are kept by name.
const BAD: usize = 100;
/// How far `at` may fall back, in seconds, before the job is taken to have been started anew.
const SLACK: f64 = 5.0;

/// What `events.jsonl` says.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) dataset: Dataset,
    pub(crate) chosen: Option<Chosen>,
    pub(crate) baseline: Option<Baseline>,
    pub(crate) steps: Steps,
    /// By their numbers, each once.
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) moments: Vec<Moment>,
    /// Moments by kind, those that are not kept included.
    counts: [u64; KINDS.len()],
    pub(crate) bad: Vec<BadSample>,
    pub(crate) bad_count: u64,
    pub(crate) done: Option<Done>,
    /// Seconds from the job's beginning to its last event.
    pub(crate) ended: f64,
    /// What is added to `at`: the time of earlier starts, where a resumed job counts from its own.
    before: f64,
}

/// Something worth a mark on the job's timeline.
#[derive(Debug)]
pub(crate) struct Moment {
    /// Seconds from the job's beginning.
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
            let (at, event) = event::parse(line).map_err(|error| reason(&error))?;
            journal.add(at, event)
        })?;
        Ok(journal)
    }

    /// How many moments of a kind there were.
    pub(crate) fn count(&self, kind: MomentKind) -> u64 {
        let place = KINDS.iter().position(|known| *known == kind);
        place
            .and_then(|place| self.counts.get(place))
            .copied()
            .unwrap_or(0)
    }

    fn add(&mut self, at: Option<f64>, event: Event) -> Result<(), String> {
        let at = self.clock(at, &event);
        match event {
            Event::Dataset(dataset) => self.dataset = dataset,
            Event::Baseline(baseline) => self.baseline = Some(baseline),
            Event::Step(step) => self.steps.add(at, &step),
            Event::Epoch(epoch) => return self.epoch(Epoch { at, ..epoch }),
            Event::BadSample(bad) => {
                self.bad_count += 1;
                if self.bad.len() < BAD {
                    self.bad.push(bad);
                }
            }
            Event::Done(done) => self.done = Some(done),
            Event::Split(split) => {
                let text = format!("split {} in {}: {}", split.split, split.encoding, split.reason);
                self.chosen = Some(split);
                self.moment(at, MomentKind::Split, &text);
            }
            Event::Replan(replan) => {
                let (from, to, encoding) = (replan.from, replan.to, replan.encoding);
                let text = format!("split {from} to {to} in {encoding}: {}", replan.reason);
                self.moment(at, MomentKind::Replan, &text);
            }
            Event::Unfreeze(unfreeze) => {
                let (epoch, freeze) = (unfreeze.epoch, unfreeze.freeze);
                let text = format!("from epoch {epoch} on what follows {freeze} is trained");
                self.moment(at, MomentKind::Unfreeze, &text);
            }
            Event::Host(host) => {
                let (kind, word) = match host.state.as_str() {
                    "up" => (MomentKind::HostUp, "is used again"),
                    _ => (MomentKind::HostDown, "is left out"),
                };
                self.moment(at, kind, &format!("{} {word}: {}", host.host, host.reason));
            }
            Event::Retry(retry) => {
                let text = format!("{} lost {} images: {}", retry.host, retry.lost, retry.reason);
                self.moment(at, MomentKind::Retry, &text);
            }
            Event::Store(said) => self.moment(at, MomentKind::Store, &said.message),
            Event::Warning(said) => self.moment(at, MomentKind::Warning, &said.message),
            Event::Other => {}
        }
        Ok(())
    }

    /// Seconds from the beginning of the job's first start: never less than before. Without a time, a step ends when it can have.
    fn clock(&mut self, at: Option<f64>, event: &Event) -> f64 {
        let own = match (at, event) {
            (Some(at), _) => at + self.before,
            (None, Event::Step(step)) => {
                let took = step.waited_seconds + step.computed_seconds;
                self.ended + if took.is_finite() { took.max(0.0) } else { 0.0 }
            }
            (None, _) => self.ended,
        };
        if own + SLACK < self.ended {
            let missing = self.ended - self.before;
            self.before += missing;
            self.ended = own + missing;
        } else {
            self.ended = self.ended.max(own);
        }
        self.ended
    }

    fn epoch(&mut self, epoch: Epoch) -> Result<(), String> {
        while self.epochs.last().is_some_and(|last| last.epoch >= epoch.epoch) {
            self.epochs.pop();
        }
        if self.epochs.len() == EPOCHS {
            return Err(format!("there are more than {EPOCHS} epochs"));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(lines: &[&str]) -> Journal {
        let mut journal = Journal::default();
        for line in lines {
            let (at, event) = event::parse(line.as_bytes()).unwrap();
            journal.add(at, event).unwrap();
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
                "bytes_received":9,"seconds":1.0,"waited_seconds":0.5,"split":"none","skipped":0,"kept_rows":4}}"#
            )
        };
        let lines = [epoch(1, "0.5"), epoch(2, "0.6"), epoch(2, "null")];
        let journal = journal(&lines.each_ref().map(String::as_str));
        assert_eq!(journal.epochs.len(), 2);
        let last = journal.epochs.last().unwrap();
        assert!(last.loss.is_nan() && last.kept_rows == Some(4) && last.fetched_rows.is_none());
        let [(name, figure)] = last.figures.as_slice() else {
            panic!("{:?}", last.figures)
        };
        assert!(name == "accuracy" && figure.is_nan());
    }

    #[test]
    fn moments_are_bounded_and_counted() {
        let line = r#"{"event":"retry","host":"h","lost":1,"attempt":1,"wait_seconds":0,"reason":"r"}"#;
        let journal = journal(&vec![line; MOMENTS + 5]);
        assert_eq!(journal.moments.len(), MOMENTS);
        assert_eq!(journal.count(MomentKind::Retry), MOMENTS as u64 + 5);
    }
}
