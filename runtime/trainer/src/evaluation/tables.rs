//! How good a network is at each class, label or number. Names and formulas are scikit-learn's.

use serde::Serialize;
use std::cmp::Reverse;

/// The figures of each output of a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Tables {
    /// With one class a sample.
    Classes {
        /// Share of samples whose class is among the five largest outputs, 0 to 1; ties count in its favour.
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

/// Samples answered yes and rightly so, answered yes, and that should be yes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) right: usize,
    pub(crate) said: usize,
    pub(crate) are: usize,
}

impl Counts {
    /// Of one label: outputs, and whether they should be a yes.
    pub(crate) fn count(label: &[(f32, bool)], is_yes: fn(f32) -> bool) -> Self {
        let mut counts = Self::default();
        for (output, is) in label {
            counts.add(is_yes(*output), *is);
        }
        counts
    }

    pub(crate) fn add(&mut self, said: bool, is: bool) {
        self.right += usize::from(said && is);
        self.said += usize::from(said);
        self.are += usize::from(is);
    }

    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            right: self.right + other.right,
            said: self.said + other.said,
            are: self.are + other.are,
        }
    }

    pub(crate) fn precision(&self) -> f64 {
        self.right as f64 / self.said.max(1) as f64
    }

    pub(crate) fn recall(&self) -> f64 {
        self.right as f64 / self.are.max(1) as f64
    }

    pub(crate) fn f1(&self) -> f64 {
        2.0 * self.right as f64 / (self.said + self.are).max(1) as f64
    }
}

/// `Σ (recall - recall before) · precision` over the outputs, those that are alike together; none for a label that no sample has.
pub(crate) fn average_precision(mut label: Vec<(f32, bool)>) -> Option<f64> {
    label.sort_by(|left, right| right.0.total_cmp(&left.0));
    let are = label.iter().filter(|(_, is)| *is).count();
    let (mut right, mut said, mut sum) = (0, 0, 0.0);
    for alike in label.chunk_by(|left, right| left.0 == right.0) {
        let more = alike.iter().filter(|(_, is)| *is).count();
        (right, said) = (right + more, said + alike.len());
        sum += more as f64 * right as f64 / said as f64;
    }
    (are > 0).then(|| sum / are as f64)
}

/// The errors of one target, summed up, and how the target spreads (Welford 1962).
#[derive(Default, Clone)]
pub(crate) struct Errors {
    absolute: f64,
    squared: f64,
    count: f64,
    mean: f64,
    spread: f64,
}

impl Errors {
    pub(crate) fn add(&mut self, output: f64, wanted: f64) {
        let error = output - wanted;
        self.absolute += error.abs();
        self.squared += error * error;
        self.count += 1.0;
        let off = wanted - self.mean;
        self.mean += off / self.count;
        self.spread += off * (wanted - self.mean);
    }

    pub(crate) fn mae(&self) -> f64 {
        self.absolute / self.count
    }

    pub(crate) fn rmse(&self) -> f64 {
        (self.squared / self.count).sqrt()
    }

    /// Of a target that is always the same, 1 where it is met and else 0, as scikit-learn says.
    pub(crate) fn r2(&self) -> f64 {
        if self.spread == 0.0 {
            return f64::from(self.squared == 0.0);
        }
        1.0 - self.squared / self.spread
    }
}
