//! Validation metrics: display names, number formats and comparison of values.

use crate::markup::{percent, significant};
use crate::run::{Epoch, Figures, Journal};

/// Primary metrics by priority.
const JUDGED_BY: [&str; 5] = [
    "accuracy",
    "mean_average_precision",
    "f1_micro",
    "f1_macro",
    "rmse",
];

/// Returns the display name of a metric.
pub(crate) fn title(name: &str) -> String {
    let known = match name {
        "accuracy" => "Accuracy",
        "f1_micro" => "F1, micro",
        "f1_macro" => "F1, macro",
        "mean_average_precision" => "Mean average precision",
        "mae" => "Mean absolute error",
        "rmse" => "RMSE",
        "r2" => "R²",
        "loss" => "Loss",
        other => return other.replace('_', " "),
    };
    known.to_owned()
}

/// Formats a value for display.
pub(crate) fn shown(name: &str, value: f64) -> String {
    if name.ends_with("accuracy") {
        percent(value)
    } else if is_fraction(name) && value.is_finite() {
        format!("{value:.3}")
    } else {
        significant(value)
    }
}

/// Returns true if values are between 0 and 1.
pub(crate) fn is_fraction(name: &str) -> bool {
    name.ends_with("accuracy")
        || name.starts_with("f1")
        || name.ends_with("precision")
        || name.ends_with("recall")
}

/// Returns true if lower values are better.
pub(crate) fn lower_is_better(name: &str) -> bool {
    ["loss", "mae", "rmse", "error"]
        .iter()
        .any(|kind| name.ends_with(kind))
}

pub(crate) fn value(figures: &Figures, name: &str) -> Option<f64> {
    let found = figures.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

/// Returns the primary metric of a run. Returns `None` if the run was never validated.
pub(crate) fn primary_metric(journal: &Journal) -> Option<&'static str> {
    let epochs = journal.epochs.first().map(|epoch| epoch.figures.clone());
    let figures = epochs.or_else(|| journal.baseline.map(|baseline| baseline.figures()))?;
    let judged = JUDGED_BY.into_iter().find(|name| value(&figures, name).is_some());
    judged.or_else(|| figures.first().map(|(name, _)| *name))
}

/// Returns the epoch with the best value, or the first such epoch. For the primary metric, this is the epoch
/// whose weights the job writes.
pub(crate) fn best<'a>(journal: &'a Journal, name: &str) -> Option<(&'a Epoch, f64)> {
    let judged = primary_metric(journal) == Some(name);
    let better = |(epoch, value): &(&Epoch, f64), (best, than): &(&Epoch, f64)| {
        if judged {
            epoch.validation.compare(&best.validation).is_gt()
        } else if lower_is_better(name) {
            value < than
        } else {
            value > than
        }
    };
    let rated = journal.epochs.iter().filter_map(|epoch| {
        let value = value(&epoch.figures, name).filter(|value| value.is_finite())?;
        Some((epoch, value))
    });
    rated.reduce(|best, epoch| if better(&epoch, &best) { epoch } else { best })
}
