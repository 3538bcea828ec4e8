//! Lists the samples with the largest errors, for reports.

use super::{ClassPrediction, OutputValues, PredictionRows, Predictions, SampleOutputs, is_yes};
use frostline_job::scores::Errors;
use frostline_wire::ObjectInfo;
use serde::Serialize;

/// Maximum number of labels listed by name.
const NAMED: usize = 8;

/// Entry of `mistakes/mistakes.json`: a wrong prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Mistake {
    key: String,
    /// True class or labels, or true value of `target`.
    label: String,
    /// Predicted class, labels or value.
    predicted: String,
    #[serde(flatten)]
    measure: MistakeMeasure,
}

/// Measure used to rank wrong predictions of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum MistakeMeasure {
    Class {
        /// Probability of the predicted class, between 0 and 1.
        probability: f32,
    },
    Labels {
        /// Number of wrong labels.
        wrong: usize,
        /// Mean binary cross-entropy over the labels.
        loss: f64,
    },
    Number {
        /// Target with the largest error relative to RMSE.
        target: String,
        /// Absolute error of this target.
        error: f64,
    },
}

/// Ranking key of wrong rows: first the number of wrong outputs, then the size of the error.
#[derive(Debug, Clone, Copy)]
struct ErrorRank {
    row: usize,
    outputs: usize,
    size: f64,
}

impl Predictions {
    /// Returns up to `most` wrong predictions, worst first. Classes are ranked by confidence, labels by the
    /// number of wrong labels and then by loss, numbers by relative error. `names` contains the output names.
    pub(crate) fn worst(&self, names: &[String], most: usize) -> Vec<(ObjectInfo, Mistake)> {
        match &self.rows {
            PredictionRows::Classes(choices) => {
                let wrong = sorted(wrong_classes(choices), most);
                self.described(&wrong, |row, key| Some(choices.get(row)?.mistake(key, names)))
            }
            PredictionRows::Labels(values) => {
                let wrong = sorted(values.wrong_labels(), most);
                self.described(&wrong, |row, key| {
                    Some(values.rows().nth(row)?.label_mistake(key, names))
                })
            }
            PredictionRows::Numbers(values) => {
                // RMSE per target over finite outputs, the unit for errors.
                let units: Vec<f64> = values.errors(f32::is_finite).iter().map(Errors::rmse).collect();
                let wrong = sorted(values.wrong_numbers(&units), most);
                self.described(&wrong, |row, key| {
                    values.rows().nth(row)?.number_mistake(key, names, &units)
                })
            }
        }
    }

    /// Adds the sample to each row, and the mistake that `describe` returns for its index and key.
    fn described(
        &self,
        wrong: &[ErrorRank],
        describe: impl Fn(usize, String) -> Option<Mistake>,
    ) -> Vec<(ObjectInfo, Mistake)> {
        let described = wrong.iter().filter_map(|wrong| {
            let object = self.samples.get(*self.indices.get(wrong.row)? as usize)?;
            let mistake = describe(wrong.row, object.sample.key.clone())?;
            Some((object, mistake))
        });
        described.collect()
    }
}

/// Sorts by descending error and truncates. Equal rows keep their order.
fn sorted(mut wrong: Vec<ErrorRank>, most: usize) -> Vec<ErrorRank> {
    wrong.sort_by(|left, right| {
        let outputs = right.outputs.cmp(&left.outputs);
        outputs.then(right.size.total_cmp(&left.size))
    });
    wrong.truncate(most);
    wrong
}

fn wrong_classes(choices: &[ClassPrediction]) -> Vec<ErrorRank> {
    let wrong = choices
        .iter()
        .enumerate()
        .filter(|(_, choice)| choice.predicted().is_some() && !choice.is_right());
    wrong
        .map(|(row, choice)| ErrorRank {
            row,
            outputs: 1,
            size: f64::from(choice.probability),
        })
        .collect()
}

impl ClassPrediction {
    fn mistake(&self, key: String, names: &[String]) -> Mistake {
        let label = names.get(self.label as usize);
        let predicted = self.predicted().and_then(|place| names.get(place));
        Mistake {
            key,
            label: label.cloned().unwrap_or_default(),
            predicted: predicted.cloned().unwrap_or_default(),
            measure: MistakeMeasure::Class {
                probability: self.probability,
            },
        }
    }
}

impl OutputValues {
    fn wrong_labels(&self) -> Vec<ErrorRank> {
        let counted = self.rows().enumerate().map(|(row, values)| ErrorRank {
            row,
            outputs: values.wrong_labels(),
            size: values.loss(),
        });
        counted.filter(|wrong| wrong.outputs > 0).collect()
    }

    fn wrong_numbers(&self, units: &[f64]) -> Vec<ErrorRank> {
        self.rows()
            .enumerate()
            .filter_map(|(row, values)| {
                let (_, size) = values.farthest(units)?;
                Some(ErrorRank {
                    row,
                    outputs: 1,
                    size,
                })
            })
            .collect()
    }
}

impl SampleOutputs<'_> {
    fn wrong_labels(&self) -> usize {
        let wrong = self
            .pairs()
            .filter(|(output, wanted)| is_yes(*output) != (*wanted > 0.5));
        wrong.count()
    }

    /// Mean binary cross-entropy over the labels.
    fn loss(&self) -> f64 {
        self.pairs()
            .map(|(output, wanted)| {
                let output = f64::from(output);
                let wanted = f64::from(wanted);
                output.max(0.0) - output * wanted + (-output.abs()).exp().ln_1p()
            })
            .sum::<f64>()
            / self.outputs.len().max(1) as f64
    }

    fn label_mistake(&self, key: String, names: &[String]) -> Mistake {
        Mistake {
            key,
            label: self.named(names, is_wanted, is_predicted),
            predicted: self.named(names, is_predicted, is_wanted),
            measure: MistakeMeasure::Labels {
                wrong: self.wrong_labels(),
                loss: self.loss(),
            },
        }
    }

    /// Formats the labels selected by `one`. Labels outside `other` are listed first.
    fn named(
        &self,
        names: &[String],
        one: impl Fn((f32, f32)) -> bool,
        other: impl Fn((f32, f32)) -> bool,
    ) -> String {
        let labels = names.iter().zip(self.pairs()).filter(|(_, pair)| one(*pair));
        let (both, alone): (Vec<_>, Vec<_>) = labels.partition(|(_, pair)| other(*pair));
        let all: Vec<&str> = alone.iter().chain(&both).map(|(name, _)| name.as_str()).collect();
        let shown = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        match all.len().saturating_sub(NAMED) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    }

    /// Returns the target with the largest relative error, and this error in units of RMSE. Returns `None`
    /// without a finite positive error.
    fn farthest(&self, units: &[f64]) -> Option<(usize, f64)> {
        let errors = self.pairs().zip(units);
        let errors = errors.map(|((output, wanted), unit)| f64::from((output - wanted).abs()) / unit);
        let wrong = errors
            .enumerate()
            .filter(|(_, error)| error.is_finite() && *error > 0.0);
        wrong.max_by(|left, right| left.1.total_cmp(&right.1).then(right.0.cmp(&left.0)))
    }

    fn number_mistake(&self, key: String, names: &[String], units: &[f64]) -> Option<Mistake> {
        let (place, _) = self.farthest(units)?;
        let output = *self.outputs.get(place)?;
        let wanted = *self.targets.get(place)?;
        Some(Mistake {
            key,
            label: wanted.to_string(),
            predicted: output.to_string(),
            measure: MistakeMeasure::Number {
                target: names.get(place).cloned().unwrap_or_default(),
                error: (f64::from(output) - f64::from(wanted)).abs(),
            },
        })
    }
}

/// Returns true if the target of a label is yes.
fn is_wanted((_, wanted): (f32, f32)) -> bool {
    wanted > 0.5
}

/// Returns true if the output for a label is yes.
fn is_predicted((output, _): (f32, f32)) -> bool {
    is_yes(output)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{names, of_rows, predictions};
    use super::*;
    use frostline_client::Task;
    use frostline_compute::Targets;
    use serde_json::{Value, json};

    fn worst(predictions: &Predictions, names: &[String], most: usize) -> Vec<Value> {
        let worst = predictions.worst(names, most);
        let listed = worst.iter().map(|(object, mistake)| {
            assert_eq!(object.sample.key, mistake.key);
            serde_json::to_value(mistake).unwrap()
        });
        listed.collect()
    }

    #[test]
    fn the_surest_of_those_taken_for_another_class_come_first() {
        // Wrong by 1, right, wrong by 3.
        let outputs = [1.0, 0.0, 5.0, 0.0, 0.0, 3.0];
        let targets = |start: usize, end: usize| Targets::Classes([1, 0, 0][start..end].to_vec());
        let predictions = predictions(Task::Classes, 2, &outputs, targets);
        let listed = worst(&predictions, &names(2), 9);
        let of = |field: &str| {
            listed
                .iter()
                .map(|mistake| mistake[field].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(of("key"), ["2.jpg", "0.jpg"]);
        assert_eq!(
            (of("label"), of("predicted")),
            (vec![json!("n0"), json!("n1")], vec![json!("n1"), json!("n0")])
        );
        // 1 / (1 + e^-3)
        assert!((listed[0]["probability"].as_f64().unwrap() - 0.952_574).abs() < 1e-5);
    }

    /// Each output is 0, +1 or -1, so a label costs ln 2, ln(1 + e) or ln(1 + e) - 1.
    #[test]
    fn most_wrong_labels_come_first_then_the_largest_loss() {
        let outputs = [
            1.0, 1.0, 1.0, // two wrong
            1.0, -1.0, -1.0, // right
            -1.0, 0.0, -1.0, // one wrong, for ln(1 + e)
            1.0, 0.0, -1.0, // one wrong, for ln 2
        ];
        let wanted = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0];
        let predictions = of_rows(Task::Labels, 3, &outputs, &wanted);
        let listed = worst(&predictions, &names(3), 9);
        let told: Vec<Value> = listed
            .iter()
            .map(|mistake| {
                json!([
                    mistake["key"],
                    mistake["label"],
                    mistake["predicted"],
                    mistake["wrong"]
                ])
            })
            .collect();
        assert_eq!(
            told,
            [
                json!(["0.jpg", "n2", "n0, n1, n2", 2]),
                json!(["2.jpg", "n0", "", 1]),
                // Missed labels are listed first.
                json!(["3.jpg", "n1, n0", "n0", 1]),
            ]
        );
        let far = (1.0 + 1.0_f64.exp()).ln();
        let near = far - 1.0;
        let expected = [
            2.0 * far + near,
            far + 2.0_f64.ln() + near,
            near + 2.0_f64.ln() + near,
        ];
        for (mistake, sum) in listed.iter().zip(expected) {
            assert!(
                (mistake["loss"].as_f64().unwrap() - sum / 3.0).abs() < 1e-9,
                "{mistake}"
            );
        }
        assert_eq!(worst(&predictions, &names(3), 1).len(), 1);
    }

    #[test]
    fn many_labels_are_counted() {
        let predictions = of_rows(Task::Labels, 11, &[-1.0; 11], &[1.0; 11]);
        let listed = worst(&predictions, &names(11), 1);
        assert_eq!(listed[0]["label"], "n0, n1, n2, n3, n4, n5, n6, n7 and 3 more");
    }

    /// The RMSE is 10 for n0 and about 0.5 for n1, so an error of 0.9 in n1 outranks an error of 12 in n0.
    #[test]
    fn the_largest_errors_come_first_each_in_units_of_its_target() {
        let outputs = [12.0, 0.4, 16.0, 0.0, 0.0, 0.9, 0.0, 0.0, f32::NAN, f32::INFINITY];
        let wanted = [0.0; 10];
        let rmse = |squares: f64| (squares / 4.0_f64).sqrt();
        assert_eq!(
            (rmse(144.0 + 256.0), (rmse(0.16 + 0.81) - 0.492_443).abs() < 1e-6),
            (10.0, true)
        );
        let listed = worst(&of_rows(Task::Numbers, 2, &outputs, &wanted), &names(2), 9);
        let told: Vec<Value> = listed
            .iter()
            .map(|mistake| {
                json!([
                    mistake["key"],
                    mistake["target"],
                    mistake["label"],
                    mistake["predicted"]
                ])
            })
            .collect();
        assert_eq!(
            told,
            [
                json!(["2.jpg", "n1", "0", "0.9"]),
                json!(["a \"b\", c.jpg", "n0", "0", "16"]),
                json!(["0.jpg", "n0", "0", "12"]),
            ]
        );
        assert_eq!(listed[1]["error"], 16.0);
    }
}
