//! Precision, recall and confusion of each class.

use crate::run::{ClassPredictions, Dataset};
use std::collections::HashMap;

/// What became of the samples of each class. Precision, recall and F1 as scikit-learn has them, but not a number where it says 0 because
/// there is nothing to divide by.
#[derive(Debug)]
pub(crate) struct Classes {
    /// In the order of the model's outputs, where the data set names them.
    pub(crate) classes: Vec<Class>,
    /// `(class, taken for, samples)` by places in `classes`; those that were right as well.
    pub(crate) pairs: Vec<(usize, usize, u64)>,
    pub(crate) samples: u64,
    pub(crate) right: u64,
    /// Of those whose rank is known, the share with the true label among the first five.
    pub(crate) top_five: Option<f64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// Samples that are of it, that were taken for it, and that are both.
    pub(crate) support: u64,
    pub(crate) predicted: u64,
    pub(crate) right: u64,
}

impl Class {
    pub(crate) fn precision(&self) -> f64 {
        self.right as f64 / self.predicted as f64
    }

    pub(crate) fn recall(&self) -> f64 {
        self.right as f64 / self.support as f64
    }

    pub(crate) fn f1(&self) -> f64 {
        2.0 * self.right as f64 / (self.support + self.predicted) as f64
    }
}

impl Classes {
    pub(crate) fn from_predictions(predictions: &ClassPredictions, dataset: &Dataset) -> Self {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut classes = Vec::new();
        let seen = {
            let mut names: Vec<&String> = predictions.names.iter().collect();
            names.sort();
            names
        };
        for name in dataset.classes.iter().chain(seen) {
            places.entry(name).or_insert_with(|| {
                classes.push(Class {
                    name: name.clone(),
                    ..Class::default()
                });
                classes.len() - 1
            });
        }
        let place = |of: u32| {
            let name = predictions.names.get(of as usize)?;
            places.get(name.as_str()).copied()
        };
        let mut pairs: Vec<(usize, usize, u64)> = predictions
            .pairs
            .iter()
            .filter_map(|((label, predicted), count)| Some((place(*label)?, place(*predicted)?, *count)))
            .collect();
        pairs.sort_unstable();
        let mut right = 0;
        for (label, predicted, count) in &pairs {
            let both = label == predicted;
            if let Some(class) = classes.get_mut(*label) {
                class.support += count;
                class.right += if both { *count } else { 0 };
            }
            if let Some(class) = classes.get_mut(*predicted) {
                class.predicted += count;
            }
            right += if both { *count } else { 0 };
        }
        let known = predictions.ranked > 0;
        Self {
            classes,
            pairs,
            samples: predictions.samples,
            right,
            top_five: known.then(|| predictions.in_five as f64 / predictions.ranked as f64),
        }
    }

    /// The pairs that were mixed up, the most frequent first.
    pub(crate) fn confused(&self) -> Vec<(&Class, &Class, u64)> {
        let mut wrong: Vec<_> = self.pairs.iter().filter(|(is, taken, _)| is != taken).collect();
        wrong.sort_by_key(|(is, taken, count)| (std::cmp::Reverse(*count), *is, *taken));
        let named = wrong.into_iter().filter_map(|(is, taken, count)| {
            Some((self.classes.get(*is)?, self.classes.get(*taken)?, *count))
        });
        named.collect()
    }

    /// Mean over the classes that any sample is of; what cannot be divided counts 0 there.
    pub(crate) fn mean(&self, figure: impl Fn(&Class) -> f64) -> f64 {
        let present = self.classes.iter().filter(|class| class.support > 0);
        let (sum, count) = present.fold((0.0, 0_u64), |(sum, count), class| {
            let value = figure(class);
            (sum + if value.is_finite() { value } else { 0.0 }, count + 1)
        });
        sum / count as f64
    }
}
