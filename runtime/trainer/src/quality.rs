//! How good a network is, on samples of each kind of task. Names and formulas are scikit-learn's.

use crate::targets::Targets;
use frostline_client::Task;
use frostline_tensor::Tensor;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::fmt;

/// How well a network does on some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quality {
    /// With one class a sample.
    Classes {
        /// Share of samples classified right, 0 to 1.
        accuracy: f64,
    },
    /// With several labels a sample; an output above 0, a probability above a half, is a yes.
    Labels {
        /// F1 over all samples and labels together, 0 to 1.
        f1_micro: f64,
        /// Mean over the labels of the F1 of each, 0 for one that nobody has and nobody gets.
        f1_macro: f64,
        /// Mean of the average precision of each label that any sample has.
        mean_average_precision: f64,
    },
    /// With numbers; each is the mean over the targets.
    Numbers {
        /// Mean absolute error.
        mae: f64,
        /// Root of the mean squared error.
        rmse: f64,
        /// Coefficient of determination, at most 1; below 0 it does worse than the targets' mean.
        r2: f64,
    },
}

impl Quality {
    /// One number to compare by, of one kind of task: the higher, the better.
    pub fn score(&self) -> f64 {
        match self {
            Self::Classes { accuracy } => *accuracy,
            Self::Labels {
                mean_average_precision,
                ..
            } => *mean_average_precision,
            Self::Numbers { rmse, .. } => -rmse,
        }
    }

    /// Its figures by their names.
    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Self::Classes { accuracy } => vec![("accuracy", accuracy)],
            Self::Labels {
                f1_micro,
                f1_macro,
                mean_average_precision,
            } => vec![
                ("f1_micro", f1_micro),
                ("f1_macro", f1_macro),
                ("mean_average_precision", mean_average_precision),
            ],
            Self::Numbers { mae, rmse, r2 } => vec![("mae", mae), ("rmse", rmse), ("r2", r2)],
        }
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Classes { accuracy } => write!(to, "accuracy {:.1} %", accuracy * 100.0),
            Self::Labels {
                f1_micro,
                f1_macro,
                mean_average_precision,
            } => write!(
                to,
                "F1 {f1_micro:.3} micro and {f1_macro:.3} macro, mean average precision {mean_average_precision:.3}"
            ),
            Self::Numbers { mae, rmse, r2 } => write!(to, "MAE {mae:.4}, RMSE {rmse:.4}, R2 {r2:.4}"),
        }
    }
}

/// Serialises the figures of samples to validate with, `validation_` before their names.
pub(crate) fn validation<S: Serializer>(quality: &Quality, to: S) -> Result<S::Ok, S::Error> {
    named("validation_", quality, to)
}

impl Serialize for Quality {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        named("", self, to)
    }
}

fn named<S: Serializer>(prefix: &str, quality: &Quality, to: S) -> Result<S::Ok, S::Error> {
    let figures = quality.figures();
    let mut map = to.serialize_map(Some(figures.len()))?;
    for (name, figure) in figures {
        map.serialize_entry(&format!("{prefix}{name}"), &figure)?;
    }
    map.end()
}

/// What a network said of samples, beside what is so. Of labels every output is kept until the end, as many as the table has values.
pub(crate) struct Scores {
    task: Task,
    samples: usize,
    right: usize,
    /// Outputs and whether they should be a yes, by label.
    labels: Vec<Vec<(f32, bool)>>,
    numbers: Vec<Errors>,
}

/// The errors of one target, summed up, and how the target spreads (Welford 1962).
#[derive(Default, Clone)]
struct Errors {
    absolute: f64,
    squared: f64,
    count: f64,
    mean: f64,
    spread: f64,
}

impl Scores {
    pub(crate) fn new(task: Task) -> Self {
        Self {
            task,
            samples: 0,
            right: 0,
            labels: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Samples so far.
    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    /// Takes the outputs of a batch, `[rows, outputs]`, beside its targets.
    pub(crate) fn add(&mut self, outputs: &Tensor, targets: &Targets) {
        let values = outputs.as_f32().unwrap_or_default();
        let width = (values.len() / targets.rows().max(1)).max(1);
        self.samples += targets.rows();
        match targets {
            Targets::Classes(classes) => self.right += correct(values, classes),
            Targets::Values { values: wanted, .. } => {
                for (outputs, wanted) in values.chunks_exact(width).zip(wanted.chunks_exact(width)) {
                    self.add_row(outputs, wanted);
                }
            }
        }
    }

    fn add_row(&mut self, outputs: &[f32], wanted: &[f32]) {
        self.labels.resize(outputs.len(), Vec::new());
        self.numbers.resize(outputs.len(), Errors::default());
        let both = outputs.iter().zip(wanted);
        if self.task == Task::Labels {
            for (label, (output, wanted)) in self.labels.iter_mut().zip(both) {
                label.push((*output, *wanted > 0.5));
            }
        } else {
            for (target, (output, wanted)) in self.numbers.iter_mut().zip(both) {
                target.add(f64::from(*output), f64::from(*wanted));
            }
        }
    }

    /// What it comes to; sorts all outputs of labels.
    pub(crate) fn quality(self) -> Quality {
        match self.task {
            Task::Classes => Quality::Classes {
                accuracy: self.right as f64 / self.samples.max(1) as f64,
            },
            Task::Labels => of_labels(self.labels),
            Task::Numbers => {
                let mean = |figure: fn(&Errors) -> f64| mean(self.numbers.iter().map(figure));
                Quality::Numbers {
                    mae: mean(|target| target.absolute / target.count),
                    rmse: mean(|target| (target.squared / target.count).sqrt()),
                    r2: mean(Errors::r2),
                }
            }
        }
    }
}

impl Errors {
    fn add(&mut self, output: f64, wanted: f64) {
        let error = output - wanted;
        self.absolute += error.abs();
        self.squared += error * error;
        self.count += 1.0;
        let off = wanted - self.mean;
        self.mean += off / self.count;
        self.spread += off * (wanted - self.mean);
    }

    /// Of a target that is always the same, 1 where it is met and else 0, as scikit-learn says.
    fn r2(&self) -> f64 {
        if self.spread == 0.0 {
            return f64::from(self.squared == 0.0);
        }
        1.0 - self.squared / self.spread
    }
}

fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0.0), |(sum, count), figure| (sum + figure, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}

/// Answered right, answered yes, and should be yes.
fn counts(label: &[(f32, bool)]) -> [usize; 3] {
    let count = |which: fn(&(f32, bool)) -> bool| label.iter().filter(|scored| which(scored)).count();
    [
        count(|(output, is)| *output > 0.0 && *is),
        count(|(output, _)| *output > 0.0),
        count(|(_, is)| *is),
    ]
}

fn f1([right, said, are]: [usize; 3]) -> f64 {
    2.0 * right as f64 / (said + are).max(1) as f64
}

fn of_labels(labels: Vec<Vec<(f32, bool)>>) -> Quality {
    let each: Vec<[usize; 3]> = labels.iter().map(|label| counts(label)).collect();
    let add = |sum: [usize; 3], one: &[usize; 3]| {
        let [a, b, c] = sum;
        let [right, said, are] = *one;
        [a + right, b + said, c + are]
    };
    Quality::Labels {
        f1_micro: f1(each.iter().fold([0; 3], add)),
        f1_macro: mean(each.iter().map(|label| f1(*label))),
        mean_average_precision: mean(labels.into_iter().filter_map(average_precision)),
    }
}

/// `Σ (recall - recall before) · precision` over the outputs, those that are alike together; none for a label that no sample has.
fn average_precision(mut label: Vec<(f32, bool)>) -> Option<f64> {
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

/// How many rows of `logits` have their largest value at the row's label. A row of NaN counts as wrong.
fn correct(logits: &[f32], labels: &[i64]) -> usize {
    let width = logits.len() / labels.len().max(1);
    let right = |(row, label): &(&[f32], &i64)| {
        let best = row.iter().enumerate().filter(|(_, value)| !value.is_nan());
        let best = best.max_by(|left, right| left.1.total_cmp(right.1).then(right.0.cmp(&left.0)));
        best.is_some_and(|(index, _)| index as i64 == **label)
    };
    logits
        .chunks_exact(width.max(1))
        .zip(labels)
        .filter(right)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quality(task: Task, width: usize, outputs: &[f32], wanted: &[f32]) -> Quality {
        let mut scores = Scores::new(task);
        // In two batches, which come to the same.
        for (outputs, wanted) in outputs.chunks(2 * width).zip(wanted.chunks(2 * width)) {
            let rows = outputs.len() / width;
            let targets = Targets::Values {
                width,
                values: wanted.to_vec(),
            };
            scores.add(&Tensor::f32([rows, width], outputs.to_vec()).unwrap(), &targets);
        }
        assert_eq!(scores.samples(), outputs.len() / width);
        scores.quality()
    }

    fn assert_close(quality: Quality, expected: &[f64]) {
        let figures = quality.figures();
        let near = figures
            .iter()
            .zip(expected)
            .all(|((_, figure), expected)| (figure - expected).abs() < 1e-6);
        assert!(near && figures.len() == expected.len(), "{quality:?}");
    }

    #[test]
    fn the_largest_logit_decides_and_the_first_of_equals() {
        let logits = [1.0, 2.0, 3.0, -1.0, 5.0, 5.0, f32::NAN, f32::NAN];
        assert_eq!(correct(&logits, &[1, 0, 0, 0]), 3);
        assert_eq!(correct(&logits, &[0, 1, 1, 1]), 0);
    }

    /// Expected: scikit-learn's `f1_score` and `average_precision_score`, with the label that nobody has left out of the latter.
    #[test]
    fn labels_are_measured_as_scikit_learn_does() {
        let outputs = [
            0.9, -0.2, -1.0, //
            -0.5, 0.4, 2.0, //
            0.3, 0.4, -1.0, //
            0.9, -0.7, -1.0, //
        ];
        let wanted = [
            1.0, 0.0, 0.0, //
            1.0, 1.0, 0.0, //
            0.0, 0.0, 0.0, //
            0.0, 1.0, 0.0, //
        ];
        // Label 1: 1 of 3 said of 2; label 2: 1 of 2 said of 2; label 3: 0 of 1 said of 0.
        let expected = [2.0 * 2.0 / 10.0, (0.4 + 0.5 + 0.0) / 3.0, 0.5];
        assert_close(quality(Task::Labels, 3, &outputs, &wanted), &expected);
    }

    #[test]
    fn numbers_are_measured_target_by_target() {
        let outputs = [1.0, 10.0, 2.0, 10.0, 3.0, 10.0, 6.0, 10.0];
        let wanted = [1.0, 10.0, 2.0, 10.0, 3.0, 10.0, 4.0, 10.0];
        let expected = [0.25, 0.5, (1.0 - 4.0 / 5.0 + 1.0) / 2.0];
        assert_close(quality(Task::Numbers, 2, &outputs, &wanted), &expected);
    }

    #[test]
    fn figures_serialise_by_their_names() {
        let quality = Quality::Numbers {
            mae: 1.0,
            rmse: 2.0,
            r2: 0.5,
        };
        assert_eq!(
            serde_json::to_value(quality).unwrap(),
            serde_json::json!({"mae": 1.0, "rmse": 2.0, "r2": 0.5})
        );
        assert!(
            quality.score()
                < Quality::Numbers {
                    mae: 9.0,
                    rmse: 1.0,
                    r2: 0.0
                }
                .score()
        );
    }
}
