//! How good a network is at each class, label or number. Names and formulas are scikit-learn's.

use serde::Serialize;
use std::cmp::Reverse;

/// The figures of each output of a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Tables {
    /// With one class a sample.
    Classes {
        /// Share of samples whose class is among the five largest outputs, 0 to 1; ties count in its favor.
        top_5_accuracy: f64,
        /// In the order of the outputs.
        classes: Vec<ClassFigures>,
        /// The confusion matrix' cells that are not 0, row by row. A sample of which no output is a number is in none.
        confusion: Vec<ConfusedPair>,
    },
    /// With several labels a sample.
    Labels {
        /// In the order of the outputs.
        labels: Vec<LabelFigures>,
    },
    /// With numbers.
    Numbers {
        /// In the order of the outputs.
        targets: Vec<TargetFigures>,
    },
}

/// How well one class is found. A share of nothing is 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassFigures {
    /// The class.
    pub name: String,
    /// Share of those taken for it that are of it, 0 to 1.
    pub precision: f64,
    /// Share of those of it that are taken for it, 0 to 1.
    pub recall: f64,
    /// Harmonic mean of both.
    pub f1: f64,
    /// Samples of it.
    pub support: usize,
}

/// A cell of a confusion matrix; classes are told by their places among the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ConfusedPair {
    /// What the samples are.
    pub label: usize,
    /// What they were taken for.
    pub predicted: usize,
    /// How many.
    pub count: usize,
}

/// How well one label is found. A share of nothing is 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelFigures {
    /// The label.
    pub name: String,
    /// Share of those said to have it that have it, 0 to 1.
    pub precision: f64,
    /// Share of those that have it that are said to, 0 to 1.
    pub recall: f64,
    /// Harmonic mean of both.
    pub f1: f64,
    /// Area under precision over recall, 0 to 1; none where no sample has it.
    pub average_precision: Option<f64>,
    /// Samples that have it.
    pub support: usize,
}

/// How well one number is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetFigures {
    /// The number's name.
    pub name: String,
    /// Mean of what it truly is, the scale of its errors.
    pub mean: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Coefficient of determination, at most 1.
    pub r2: f64,
}

impl Tables {
    /// The `most` cells beside the diagonal with the most samples, the largest first; none where there are no classes.
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
