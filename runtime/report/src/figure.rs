//! Validation metrics: display names, number formats and comparison of values.

use crate::markup::{percent, significant};
use crate::run::RunJournal;
use frostline_job::{Quality, TrainedEpoch};

/// Returns the display name of a metric.
pub(crate) fn title(name: &str) -> &str {
    match name {
        "accuracy" => "Accuracy",
        "f1_micro" => "F1, micro",
        "f1_macro" => "F1, macro",
        "mean_average_precision" => "Mean average precision",
        "mae" => "Mean absolute error",
        "rmse" => "RMSE",
        "r2" => "R²",
        other => other,
    }
}

/// Formats a value for display.
pub(crate) fn shown(name: &str, value: f64) -> String {
    if name == "accuracy" {
        percent(value)
    } else if is_fraction(name) && value.is_finite() {
        format!("{value:.3}")
    } else {
        significant(value)
    }
}

/// Returns true if values are between 0 and 1.
pub(crate) fn is_fraction(name: &str) -> bool {
    !is_error(name) && !["r2", "loss"].contains(&name)
}

/// Returns true for errors in the unit of the target. Lower values are better.
pub(crate) fn is_error(name: &str) -> bool {
    ["mae", "rmse"].contains(&name)
}

/// Returns the value as a score. Higher scores are better.
pub(crate) fn score(name: &str, value: f64) -> f64 {
    if is_error(name) { -value } else { value }
}

pub(crate) fn value(quality: &Quality, name: &str) -> Option<f64> {
    let mut figures = quality.figures().into_iter();
    figures.find_map(|(known, value)| (known == name).then_some(value))
}

/// Returns the primary metric of a run. Returns `None` if the run was never validated.
pub(crate) fn primary_metric(journal: &RunJournal) -> Option<&'static str> {
    let quality = journal.trained().next().map(|epoch| epoch.validation);
    Some(quality.or(journal.baseline)?.main_metric().0)
}

/// Returns the epoch with the best value, or the first such epoch. For the primary metric, this is the epoch
/// whose weights the job writes.
pub(crate) fn best<'a>(journal: &'a RunJournal, name: &str) -> Option<(&'a TrainedEpoch, f64)> {
    let is_primary = primary_metric(journal) == Some(name);
    let rated = journal.trained().filter_map(|epoch| {
        let value = value(&epoch.validation, name).filter(|value| value.is_finite())?;
        Some((epoch, value))
    });
    rated.reduce(|best, next| {
        let is_better = if is_primary {
            next.0.validation.compare(&best.0.validation).is_gt()
        } else {
            score(name, next.1) > score(name, best.1)
        };
        if is_better { next } else { best }
    })
}
