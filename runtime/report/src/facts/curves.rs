//! Points of curves over epochs. Epochs have points at the end, and steps have points within the epoch.

use crate::run::{Epoch, Journal, Step};

/// Returns `(epoch, value)` for each epoch with a finite value.
pub(crate) fn epoch_series(journal: &Journal, figure: impl Fn(&Epoch) -> Option<f64>) -> Vec<(f64, f64)> {
    let points = journal.epochs.iter().filter_map(|epoch| {
        let value = figure(epoch).filter(|value| value.is_finite())?;
        Some((f64::from(epoch.epoch), value))
    });
    points.collect()
}

/// Returns `(epochs trained, loss)` for each sampled step.
pub(crate) fn step_series(journal: &Journal) -> Vec<(f64, f64)> {
    let usual = journal.dataset.steps_per_epoch;
    let mut points = Vec::with_capacity(journal.steps.sampled().len());
    let ended = |epoch: u32| journal.epochs.iter().rev().any(|ended| ended.epoch == epoch);
    for steps in journal
        .steps
        .sampled()
        .chunk_by(|left, right| left.epoch == right.epoch)
    {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            continue;
        };
        let before = first.step.saturating_sub(1);
        let mut length = last.step.saturating_sub(before);
        if !ended(first.epoch) {
            length = length.max(usual);
        }
        let place = |step: &Step| {
            let share = step.step.saturating_sub(before) as f64 / length.max(1) as f64;
            f64::from(first.epoch) - 1.0 + share
        };
        points.extend(steps.iter().map(|step| (place(step), f64::from(step.loss))));
    }
    points
}
