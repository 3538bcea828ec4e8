use crate::evaluation::{Softmax, is_yes, sigmoid, top};
use frostline_job::Task;
use serde::Serialize;
use std::path::PathBuf;

/// Outcome of one image.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Path of the image or of the failed entry.
    pub path: PathBuf,
    /// The model's answer or an error message.
    pub answer: Result<Answer, String>,
}

/// Prediction for one image.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Most likely classes, sorted by descending probability.
    Classes(Vec<ClassProbability>),
    /// All labels in output order.
    Labels(Vec<LabelAnswer>),
    /// All numbers in output order.
    Targets(Vec<TargetValue>),
}

/// Probability of a class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassProbability {
    /// Name of the class.
    pub class: String,
    /// Probability, between 0 and 1.
    pub probability: f32,
}

/// Prediction of a label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelAnswer {
    /// Name of the label.
    pub label: String,
    /// True if the label is more likely than not.
    pub yes: bool,
    /// Probability, between 0 and 1.
    pub probability: f32,
}

/// Predicted number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetValue {
    /// Name of the target.
    pub target: String,
    /// Predicted value.
    pub value: f32,
}

impl Answer {
    /// Converts a row of scores to an answer. For classes, includes the `most` likely ones.
    ///
    /// # Errors
    /// Returns a message if any score is NaN or infinite.
    pub(super) fn from_row(row: &[f32], task: Task, names: &[String], most: usize) -> Result<Self, String> {
        if !row.iter().all(|score| score.is_finite()) {
            return Err("the model's outputs are NaN or infinite".to_owned());
        }
        let named = names.iter().cloned().zip(row.iter().copied());
        Ok(match task {
            Task::Classes => {
                let softmax = Softmax::from_row(row);
                Self::Classes(
                    top(row, most)
                        .into_iter()
                        .filter_map(|place| {
                            Some(ClassProbability {
                                class: names.get(place)?.clone(),
                                probability: softmax.probability(*row.get(place)?),
                            })
                        })
                        .collect(),
                )
            }
            Task::Labels => Self::Labels(
                named
                    .map(|(label, score)| LabelAnswer {
                        label,
                        yes: is_yes(score),
                        probability: sigmoid(score),
                    })
                    .collect(),
            ),
            Task::Numbers => Self::Targets(
                named
                    .map(|(target, value)| TargetValue { target, value })
                    .collect(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_serialize_as_scripts_expect() {
        let names = ["cat", "dog", "owl"].map(str::to_owned);
        let said = |task, row: &[f32]| {
            serde_json::to_value(Answer::from_row(row, task, &names, 2).unwrap()).unwrap()
        };
        assert_eq!(
            said(Task::Classes, &[0.0, 0.0, -200.0]),
            json!({"classes": [{"class": "cat", "probability": 0.5}, {"class": "dog", "probability": 0.5}]})
        );
        assert_eq!(
            said(Task::Labels, &[0.0, 200.0, -200.0]),
            json!({"labels": [
                {"label": "cat", "yes": false, "probability": 0.5},
                {"label": "dog", "yes": true, "probability": 1.0},
                {"label": "owl", "yes": false, "probability": 0.0}]})
        );
        assert_eq!(
            said(Task::Numbers, &[0.5, 2.0, -1.0]),
            json!({"targets": [
                {"target": "cat", "value": 0.5}, {"target": "dog", "value": 2.0}, {"target": "owl", "value": -1.0}]})
        );
        assert!(Answer::from_row(&[f32::NAN, 1.0, 1.0], Task::Classes, &names, 2).is_err());
    }
}
