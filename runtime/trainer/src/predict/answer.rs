use crate::evaluation::{Softmax, is_yes, sigmoid, top};
use frostline_client::Task;
use serde::Serialize;
use std::path::PathBuf;

/// What became of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The image, or a path that led to none.
    pub path: PathBuf,
    /// What the model says of it, or why it says nothing.
    pub answer: Result<Answer, String>,
}

/// What a model says of an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The most likely classes, the likeliest first.
    Classes(Vec<ClassProbability>),
    /// Every label, in the order of the outputs.
    Labels(Vec<LabelAnswer>),
    /// Every number, in the order of the outputs.
    Targets(Vec<TargetValue>),
}

/// A class that an image may be of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassProbability {
    /// Its name.
    pub class: String,
    /// How likely it is, 0 to 1.
    pub probability: f32,
}

/// A label that an image has or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelAnswer {
    /// Its name.
    pub label: String,
    /// Whether the image has it: whether that is more likely than not.
    pub yes: bool,
    /// How likely that is, 0 to 1.
    pub probability: f32,
}

/// A number that is said of an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetValue {
    /// Its name.
    pub target: String,
    /// What it is.
    pub value: f32,
}

impl Answer {
    /// What a row of scores says; of classes the likeliest `most`.
    ///
    /// # Errors
    /// Says so where the scores are no numbers.
    pub(super) fn from_row(row: &[f32], task: Task, names: &[String], most: usize) -> Result<Self, String> {
        if !row.iter().all(|score| score.is_finite()) {
            return Err("the model's outputs are NaN or infinite".to_owned());
        }
        let each = || names.iter().cloned().zip(row.iter().copied());
        Ok(match task {
            Task::Classes => {
                let softmax = Softmax::from_row(row);
                let likely = |place: usize| {
                    Some(ClassProbability {
                        class: names.get(place)?.clone(),
                        probability: softmax.probability(*row.get(place)?),
                    })
                };
                Self::Classes(top(row, most).into_iter().filter_map(likely).collect())
            }
            Task::Labels => {
                let flagged = |(label, score)| LabelAnswer {
                    label,
                    yes: is_yes(score),
                    probability: sigmoid(score),
                };
                Self::Labels(each().map(flagged).collect())
            }
            Task::Numbers => {
                let estimated = |(target, value)| TargetValue { target, value };
                Self::Targets(each().map(estimated).collect())
            }
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
