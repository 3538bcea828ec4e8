//! Computes the times of a job from events.

use frostline_trainer::{Event, TrainedEpoch, TrainedStep};
use frostline_wire::{Encoding, Split};

/// Times of a complete job by epoch.
#[derive(Debug, Default)]
pub(crate) struct JobTimes {
    /// Seconds from the listing to the tuned model.
    pub(crate) seconds: f64,
    pub(crate) epochs: Vec<Epoch>,
    /// Initial split and encoding.
    pub(crate) first_split: Option<(Split, Encoding)>,
    current_epoch: Epoch,
}

/// Seconds spent on training steps in an epoch, divided into waiting for batches and computing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Epoch {
    /// Seconds including validation.
    pub(crate) seconds: f64,
    pub(crate) steps: u64,
    pub(crate) waited: f64,
    pub(crate) computed: f64,
}

impl JobTimes {
    /// Adds an event of the job.
    pub(crate) fn add_event(&mut self, event: &Event) {
        match event {
            Event::Split { split, encoding, .. } if self.first_split.is_none() => {
                self.first_split = Some((split.clone(), *encoding));
            }
            Event::Step(TrainedStep {
                waited_seconds,
                computed_seconds,
                ..
            }) => {
                self.current_epoch.steps += 1;
                self.current_epoch.waited += waited_seconds;
                self.current_epoch.computed += computed_seconds;
            }
            Event::Epoch(TrainedEpoch { seconds, .. }) => {
                self.current_epoch.seconds = *seconds;
                self.epochs.push(std::mem::take(&mut self.current_epoch));
            }
            _ => {}
        }
    }

    pub(crate) fn first(&self) -> Epoch {
        self.epochs.first().copied().unwrap_or_default()
    }

    /// Sum of the epochs after the first.
    pub(crate) fn later(&self) -> Epoch {
        let later = self.epochs.iter().skip(1);
        later.fold(Epoch::default(), |sum, epoch| Epoch {
            seconds: sum.seconds + epoch.seconds,
            steps: sum.steps + epoch.steps,
            waited: sum.waited + epoch.waited,
            computed: sum.computed + epoch.computed,
        })
    }
}

impl Epoch {
    /// Seconds of the training steps, including waiting for batches.
    pub(crate) fn training(&self) -> f64 {
        self.waited + self.computed
    }
}
