//! Precision, recall and confusion by class.

use crate::run::{ClassPredictions, Dataset};
use std::collections::HashMap;

/// Classification results. Precision, recall and F1 are the same as in scikit-learn, except that they are NaN
/// instead of 0 if the denominator is 0.
#[derive(Debug)]
pub(crate) struct Classes {
    /// Classes in the order of the model's outputs. Classes unknown to the data set follow in alphabetical
    /// order.
    pub(crate) classes: Vec<Class>,
    /// Pairs of true and predicted class with the number of samples, including correct predictions. Classes
    /// are indices into `classes`.
    pub(crate) pairs: Vec<(usize, usize, u64)>,
    pub(crate) samples: u64,
    pub(crate) right: u64,
    /// Top-five accuracy over samples with a known rank.
    pub(crate) top_five: Option<f64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// Number of samples with this true class, with this predicted class, and with both.
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
        let mut seen: Vec<&String> = predictions.names.iter().filter(|name| !name.is_empty()).collect();
        seen.sort();
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
        let mut pairs = Vec::new();
        let mut right = 0;
        for ((label, predicted), count) in &predictions.pairs {
            let label = place(*label);
            let predicted = place(*predicted);
            let both = if label.is_some() && label == predicted {
                *count
            } else {
                0
            };
            if let Some(class) = label.and_then(|label| classes.get_mut(label)) {
                class.support += count;
                class.right += both;
            }
            if let Some(class) = predicted.and_then(|predicted| classes.get_mut(predicted)) {
                class.predicted += count;
            }
            pairs.extend(
                label
                    .zip(predicted)
                    .map(|(label, predicted)| (label, predicted, *count)),
            );
            right += both;
        }
        pairs.sort_unstable();
        let known = predictions.ranked > 0;
        Self {
            classes,
            pairs,
            samples: predictions.samples,
            right,
            top_five: known.then(|| predictions.in_five as f64 / predictions.ranked as f64),
        }
    }

    /// Returns the confused pairs, the most frequent first.
    pub(crate) fn confused(&self) -> Vec<(&Class, &Class, u64)> {
        let mut wrong: Vec<_> = self.pairs.iter().filter(|(is, taken, _)| is != taken).collect();
        wrong.sort_by_key(|(is, taken, count)| (std::cmp::Reverse(*count), *is, *taken));
        let named = wrong.into_iter().filter_map(|(is, taken, count)| {
            Some((self.classes.get(*is)?, self.classes.get(*taken)?, *count))
        });
        named.collect()
    }

    /// Returns the mean over all classes with samples. Undefined values are replaced by 0.
    pub(crate) fn mean(&self, figure: impl Fn(&Class) -> f64) -> f64 {
        let present = self.classes.iter().filter(|class| class.support > 0);
        let (sum, count) = present.fold((0.0, 0_u64), |(sum, count), class| {
            let value = figure(class);
            (sum + if value.is_finite() { value } else { 0.0 }, count + 1)
        });
        sum / count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Predictions;

    #[test]
    fn escaped_names_are_the_classes_of_the_data_and_a_missing_prediction_is_none() {
        let names = ["-dash", "+plus", "=sum", "@at", "'=quoted", "plain"];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("predictions.csv");
        let cells = names.map(frostline_job::spreadsheet::escape);
        let rows: String = cells.iter().map(|cell| format!("k,{cell},{cell}\n")).collect();
        std::fs::write(&file, format!("key,label,predicted\n{rows}k,plain,\n")).unwrap();
        let Some(Predictions::Classes(predictions)) = Predictions::read(&file).unwrap() else {
            panic!("no classes")
        };
        let dataset = Dataset {
            classes: names.map(str::to_owned).to_vec(),
            ..Dataset::default()
        };
        let found = Classes::from_predictions(&predictions, &dataset);
        let rows: Vec<(&str, u64, u64)> = found
            .classes
            .iter()
            .map(|class| (class.name.as_str(), class.support, class.right))
            .collect();
        let mut expected = names.map(|name| (name, 1, 1));
        expected[5].1 = 2;
        assert_eq!(rows, expected);
        assert_eq!((found.samples, found.right), (7, 6));
    }
}
