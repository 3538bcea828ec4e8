//! Export to TensorBoard.

mod record;

use crate::Run;
use crate::run::{Epoch, Journal};
use record::Events;

/// Returns the contents of a TensorBoard event file for `run`. TensorBoard opens files with `tfevents` in the
/// name.
///
/// Scalars use the step number, and scalars of an epoch the number of the last step:
///
/// * `step/loss`, `step/waited_seconds`, `step/computed_seconds`
/// * `epoch/loss`, `epoch/seconds`, `epoch/waited_seconds`, `epoch/bytes_received`,
///   `epoch/images_per_second`, `epoch/skipped`, `epoch/cached_rows`, `epoch/fetched_rows`
/// * `validation/accuracy` or the other metrics of the task, including the validation before training
///
/// Only finite values are written. For jobs with more than 250,000 steps, steps are sampled evenly.
pub fn tensorboard(run: &Run) -> Vec<u8> {
    let mut events = Events::new(run.started);
    let journal = &run.journal;
    if let Some(baseline) = &journal.baseline {
        for (name, value) in baseline.figures() {
            events.scalar(run.started, 0, &format!("validation/{name}"), value);
        }
    }
    let mut epochs = journal.epochs.iter().peekable();
    let mut last = 0;
    for step in journal.steps.sampled() {
        while let Some(epoch) = epochs.next_if(|epoch| epoch.epoch < step.epoch) {
            add_epoch(&mut events, run.started, last, epoch, journal);
        }
        last = step.step;
        let at = run.started + step.at;
        let number = step.step;
        events.scalar(at, number, "step/loss", f64::from(step.loss));
        events.scalar(at, number, "step/waited_seconds", f64::from(step.waited));
        events.scalar(at, number, "step/computed_seconds", f64::from(step.computed));
    }
    for epoch in epochs {
        last = last.max(u64::from(epoch.epoch).saturating_mul(journal.dataset.steps_per_epoch));
        add_epoch(&mut events, run.started, last, epoch, journal);
    }
    events.bytes()
}

fn add_epoch(events: &mut Events, started: f64, step: u64, epoch: &Epoch, journal: &Journal) {
    let at = started + epoch.at;
    for (name, value) in [
        ("epoch/loss", epoch.loss),
        ("epoch/seconds", epoch.seconds),
        ("epoch/waited_seconds", epoch.waited_seconds),
        ("epoch/bytes_received", epoch.bytes_received as f64),
        (
            "epoch/images_per_second",
            journal.dataset.train as f64 / epoch.seconds,
        ),
        ("epoch/skipped", epoch.skipped as f64),
        ("epoch/cached_rows", epoch.cached_rows as f64),
        ("epoch/fetched_rows", epoch.fetched_rows as f64),
    ] {
        events.scalar(at, step, name, value);
    }
    for (name, value) in &epoch.figures {
        events.scalar(at, step, &format!("validation/{name}"), *value);
    }
}
