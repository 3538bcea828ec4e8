//! What a whole job took, as its events tell.

use frostline_trainer::Event;
use frostline_wire::{Encoding, Split};

/// A whole job, epoch by epoch.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// From the listing to the tuned model.
    pub(crate) seconds: f64,
    pub(crate) epochs: Vec<Epoch>,
    /// Where it was divided at first, and how its activations traveled.
    pub(crate) place: Option<(Split, Encoding)>,
    present: Epoch,
}

/// An epoch's training steps and its validation.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Epoch {
    /// With its validation.
    pub(crate) seconds: f64,
    pub(crate) steps: u64,
    pub(crate) waited: f64,
    pub(crate) computed: f64,
}

impl Whole {
    /// Counts what a job tells.
    pub(crate) fn add_event(&mut self, event: &Event) {
        match event {
            Event::Split { split, encoding, .. } if self.place.is_none() => {
                self.place = Some((split.clone(), *encoding));
            }
            Event::Step {
                waited_seconds,
                computed_seconds,
                ..
            } => {
                self.present.steps += 1;
                self.present.waited += waited_seconds;
                self.present.computed += computed_seconds;
            }
            Event::Epoch { seconds, .. } => {
                self.present.seconds = *seconds;
                self.epochs.push(std::mem::take(&mut self.present));
            }
            _ => {}
        }
    }

    pub(crate) fn first(&self) -> Epoch {
        self.epochs.first().copied().unwrap_or_default()
    }

    /// The epochs after the first, put together.
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
    /// Seconds of its training steps, waits included.
    pub(crate) fn training(&self) -> f64 {
        self.waited + self.computed
    }
}
