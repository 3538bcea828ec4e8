//! Figures per class, label or number. Names and formulas follow scikit-learn.

use serde::Serialize;
use std::cmp::Reverse;

/// Figures for each output of a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Tables {
    /// Tables for single-label classification.
    Classes {
        /// Fraction of samples with the true class in the five largest outputs, between 0 and 1. Ties count
        /// as correct.
        top_5_accuracy: f64,
        /// In the order of the outputs.
        classes: Vec<ClassFigures>,
        /// Non-zero cells of the confusion matrix, row by row. Samples without a numeric output are omitted.
        confusion: Vec<ConfusedPair>,
    },
    /// Tables for multi-label classification.
    Labels {
        /// In the order of the outputs.
        labels: Vec<LabelFigures>,
    },
    /// Tables for regression.
    Numbers {
        /// In the order of the outputs.
        targets: Vec<TargetFigures>,
    },
}

/// Figures of one class. Undefined fractions are 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassFigures {
    /// Name of the class.
    pub name: String,
    /// Fraction of true positives in the samples predicted as this class, between 0 and 1.
    pub precision: f64,
    /// Fraction of true positives in the samples of this class, between 0 and 1.
    pub recall: f64,
    /// Harmonic mean of precision and recall.
    pub f1: f64,
    /// Number of samples with this class.
    pub support: usize,
}

/// Cell of a confusion matrix. Classes are identified by output index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ConfusedPair {
    /// Index of the true class.
    pub label: usize,
    /// Index of the predicted class.
    pub predicted: usize,
    /// Number of samples.
    pub count: usize,
}

/// Figures of one label. Undefined fractions are 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelFigures {
    /// Name of the label.
    pub name: String,
    /// Fraction of true positives in the samples predicted to have the label, between 0 and 1.
    pub precision: f64,
    /// Fraction of true positives in the samples with the label, between 0 and 1.
    pub recall: f64,
    /// Harmonic mean of precision and recall.
    pub f1: f64,
    /// Area under the precision-recall curve, between 0 and 1; `None` without positive samples.
    pub average_precision: Option<f64>,
    /// Number of samples with this label.
    pub support: usize,
}

/// Figures of one numeric target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetFigures {
    /// Name of the target.
    pub name: String,
    /// Mean of the true values, to put errors into perspective.
    pub mean: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Root mean squared error.
    pub rmse: f64,
    /// Coefficient of determination, up to 1.
    pub r2: f64,
}

impl Tables {
    /// Returns the `most` largest off-diagonal cells in descending order. Returns an empty list without
    /// classes.
    pub fn most_confused(&self, most: usize) -> Vec<ConfusedPair> {
        let Self::Classes { confusion, .. } = self else {
            return Vec::new();
        };
        let wrong = confusion.iter().filter(|cell| cell.label != cell.predicted);
        let mut wrong: Vec<ConfusedPair> = wrong.copied().collect();
        wrong.sort_by_key(|cell| Reverse(cell.count));
        wrong.truncate(most);
        wrong
    }
}
