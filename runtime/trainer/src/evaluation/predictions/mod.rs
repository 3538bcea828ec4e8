//! Predictions for samples, with true labels.

mod csv;
mod outputs;
mod tensors;
mod worst;

pub(crate) use outputs::{Softmax, is_yes, sigmoid, top};
pub(crate) use worst::Mistake;

use crate::{ClassFigures, ConfusedPair, LabelFigures, Quality, Tables, TargetFigures};
use frostline_client::{Samples, Task};
use frostline_compute::Targets;
use frostline_job::scores::{Counts, Errors, average_precision};
use frostline_tensor::Tensor;
use outputs::{largest, rank};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Predictions for the samples of a part. Uses 20 bytes per sample for classes. For labels or numbers, it
/// uses 4 bytes per sample and 8 bytes per value, with one value per label or number.
pub(crate) struct Predictions {
    /// All samples of the part.
    samples: Arc<Samples>,
    /// Sample index of each row.
    indices: Vec<u32>,
    rows: PredictionRows,
}

enum PredictionRows {
    Classes(Vec<ClassPrediction>),
    Labels(OutputValues),
    Numbers(OutputValues),
}

/// Compact prediction for a sample with a class.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ClassPrediction {
    /// Output index of the true class.
    label: u32,
    /// Output index of the predicted class, or [`NONE`] if the probabilities are undefined.
    predicted: u32,
    /// Rank of the true class by output size, counted from 1. Ties are resolved in favor of the true class.
    rank: u32,
    /// Probability of the predicted class, between 0 and 1.
    probability: f32,
}

const NONE: u32 = u32::MAX;

/// Outputs and targets in row-major order.
#[derive(Default)]
struct OutputValues {
    width: usize,
    outputs: Vec<f32>,
    targets: Vec<f32>,
}

/// Outputs and targets of one sample. The outputs are raw, which are logits for labels.
#[derive(Clone, Copy)]
struct SampleOutputs<'a> {
    outputs: &'a [f32],
    targets: &'a [f32],
}

impl Predictions {
    /// Creates an empty collection for `samples`.
    pub(crate) fn new(task: Task, samples: Arc<Samples>) -> Self {
        Self {
            samples,
            indices: Vec::new(),
            rows: match task {
                Task::Classes => PredictionRows::Classes(Vec::new()),
                Task::Labels => PredictionRows::Labels(OutputValues::default()),
                Task::Numbers => PredictionRows::Numbers(OutputValues::default()),
            },
        }
    }

    /// Returns the number of predictions.
    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Adds the outputs of a batch, `[rows, outputs]`, with the corresponding targets. `indices` contains the
    /// sample indices.
    pub(crate) fn add(&mut self, indices: &[usize], outputs: &Tensor, targets: &Targets) {
        let values = outputs.as_f32().unwrap_or_default();
        match (&mut self.rows, targets) {
            (PredictionRows::Classes(choices), Targets::Classes(classes)) => {
                let width = (values.len() / classes.len().max(1)).max(1);
                let rows = values.chunks_exact(width).zip(classes);
                choices.extend(rows.map(|(row, class)| ClassPrediction::from_row(row, *class)));
            }
            (
                PredictionRows::Labels(all) | PredictionRows::Numbers(all),
                Targets::Values {
                    width,
                    values: wanted,
                },
            ) => {
                all.width = *width;
                all.outputs.extend_from_slice(values);
                all.targets.extend_from_slice(wanted);
            }
            // Unreachable: targets always match the task.
            _ => return,
        }
        self.indices.extend(indices.iter().map(|index| *index as u32));
    }

    /// Returns the keys of the samples, in the order of the rows.
    fn keys(&self) -> impl Iterator<Item = String> {
        self.indices.iter().map(move |index| {
            self.samples
                .get(*index as usize)
                .map(|object| object.sample.key)
                .unwrap_or_default()
        })
    }

    /// Computes the summary figures. Sorts the outputs of each label.
    pub(crate) fn quality(&self) -> Quality {
        match &self.rows {
            PredictionRows::Classes(choices) => Quality::Classes {
                accuracy: share(choices, ClassPrediction::is_right),
            },
            PredictionRows::Labels(values) => {
                let labels: Vec<Label> = values.labels().collect();
                let all = labels
                    .iter()
                    .fold(Counts::default(), |all, label| all.plus(&label.counts));
                Quality::Labels {
                    f1_micro: all.f1(),
                    f1_macro: mean(labels.iter().map(|label| label.counts.f1())),
                    mean_average_precision: mean(labels.iter().filter_map(|label| label.average_precision)),
                }
            }
            PredictionRows::Numbers(values) => {
                let errors = values.errors(|_| true);
                Quality::Numbers {
                    mae: mean(errors.iter().map(Errors::mae)),
                    rmse: mean(errors.iter().map(Errors::rmse)),
                    r2: mean(errors.iter().map(Errors::r2)),
                }
            }
        }
    }

    /// Computes figures for each output. `names` contains the output names.
    pub(crate) fn tables(&self, names: &[String]) -> Tables {
        match &self.rows {
            PredictionRows::Classes(choices) => class_tables(choices, names),
            PredictionRows::Labels(values) => Tables::Labels {
                labels: names
                    .iter()
                    .zip(values.labels())
                    .map(|(name, label)| label.figures(name))
                    .collect(),
            },
            PredictionRows::Numbers(values) => {
                let errors = values.errors(|_| true);
                Tables::Numbers {
                    targets: names
                        .iter()
                        .zip(&errors)
                        .map(|(name, errors)| TargetFigures {
                            name: name.clone(),
                            mean: errors.mean(),
                            mae: errors.mae(),
                            rmse: errors.rmse(),
                            r2: errors.r2(),
                        })
                        .collect(),
                }
            }
        }
    }
}

impl ClassPrediction {
    /// Summarizes one row. A row with NaN or infinity has no prediction and counts as wrong.
    fn from_row(row: &[f32], class: i64) -> Self {
        let predicted = largest(row);
        let output = predicted.and_then(|place| row.get(place)).copied();
        Self {
            label: class as u32,
            predicted: predicted.map_or(NONE, |place| place as u32),
            rank: rank(row, class as usize) as u32,
            probability: output.map_or(f32::NAN, |output| Softmax::from_row(row).probability(output)),
        }
    }

    fn predicted(&self) -> Option<usize> {
        (self.predicted != NONE).then_some(self.predicted as usize)
    }

    fn is_right(&self) -> bool {
        self.predicted == self.label
    }
}

/// Figures of one label.
struct Label {
    counts: Counts,
    average_precision: Option<f64>,
}

impl Label {
    fn figures(&self, name: &str) -> LabelFigures {
        LabelFigures {
            name: name.to_owned(),
            precision: self.counts.precision(),
            recall: self.counts.recall(),
            f1: self.counts.f1(),
            average_precision: self.average_precision,
            support: self.counts.support,
        }
    }
}

impl OutputValues {
    /// Computes figures label by label, so only one label is copied at a time.
    fn labels(&self) -> impl Iterator<Item = Label> {
        (0..self.width).map(|place| {
            let outputs = self.outputs.iter().skip(place).step_by(self.width);
            let wanted = self.targets.iter().skip(place).step_by(self.width);
            let label: Vec<(f32, bool)> = outputs
                .zip(wanted)
                .map(|(output, is)| (*output, *is > 0.5))
                .collect();
            Label {
                counts: Counts::count(&label, is_yes),
                average_precision: average_precision(label),
            }
        })
    }

    fn rows(&self) -> impl Iterator<Item = SampleOutputs<'_>> {
        let width = self.width.max(1);
        let outputs = self.outputs.chunks_exact(width);
        let rows = outputs.zip(self.targets.chunks_exact(width));
        rows.map(|(outputs, targets)| SampleOutputs { outputs, targets })
    }

    /// Computes the errors of each target over the outputs that `counts` accepts.
    fn errors(&self, counts: fn(f32) -> bool) -> Vec<Errors> {
        let mut errors = vec![Errors::default(); self.width];
        for row in self.rows() {
            for (target, (output, wanted)) in errors.iter_mut().zip(row.pairs()) {
                if counts(output) {
                    target.add(f64::from(output), f64::from(wanted));
                }
            }
        }
        errors
    }
}

impl SampleOutputs<'_> {
    fn pairs(&self) -> impl Iterator<Item = (f32, f32)> {
        self.outputs.iter().copied().zip(self.targets.iter().copied())
    }
}

fn class_tables(choices: &[ClassPrediction], names: &[String]) -> Tables {
    const TOP: u32 = 5;
    let mut counts = vec![Counts::default(); names.len()];
    // Contains no more cells than samples.
    let mut cells: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for choice in choices {
        let label = choice.label as usize;
        let predicted = choice.predicted();
        if let Some(predicted) = predicted {
            *cells.entry((label, predicted)).or_default() += 1;
        }
        if let Some(of_label) = counts.get_mut(label) {
            of_label.add(choice.is_right(), true);
        }
        if let Some(taken_for) = predicted.filter(|_| !choice.is_right()) {
            counts
                .get_mut(taken_for)
                .into_iter()
                .for_each(|counts| counts.add(true, false));
        }
    }
    Tables::Classes {
        top_5_accuracy: share(choices, |choice| choice.rank <= TOP),
        classes: names
            .iter()
            .zip(counts)
            .map(|(name, counts)| ClassFigures {
                name: name.clone(),
                precision: counts.precision(),
                recall: counts.recall(),
                f1: counts.f1(),
                support: counts.support,
            })
            .collect(),
        confusion: cells
            .into_iter()
            .map(|((label, predicted), count)| ConfusedPair {
                label,
                predicted,
                count,
            })
            .collect(),
    }
}

fn share(choices: &[ClassPrediction], which: fn(&ClassPrediction) -> bool) -> f64 {
    let count = choices.iter().filter(|choice| which(choice)).count();
    count as f64 / choices.len().max(1) as f64
}

fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0.0), |(sum, count), figure| (sum + figure, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}

#[cfg(test)]
mod tests;
