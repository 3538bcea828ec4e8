//! Converts predictions to the tensors of a checkpoint.

use super::{ClassPrediction, OutputValues, PredictionRows, Predictions};
use frostline_client::{Samples, Task};
use frostline_tensor::{ShapeError, Tensor};
use std::sync::Arc;

const CHOICES: &str = "choices";
const PROBABILITIES: &str = "probabilities";
const OUTPUTS: &str = "outputs";
const WANTED: &str = "wanted";
const SAMPLES: &str = "samples";

impl Predictions {
    /// Returns the predictions as named tensors.
    pub(crate) fn tensors(&self) -> Result<Vec<(String, Tensor)>, ShapeError> {
        let count = self.indices.len();
        let indices = self.indices.iter().map(|index| i64::from(*index)).collect();
        let rows = match &self.rows {
            PredictionRows::Classes(choices) => {
                let numbers = choices
                    .iter()
                    .flat_map(|choice| [choice.label, choice.predicted, choice.rank].map(i64::from));
                let probabilities = choices.iter().map(|choice| choice.probability).collect();
                [
                    (CHOICES, Tensor::i64([count, 3], numbers.collect())?),
                    (PROBABILITIES, Tensor::f32([count], probabilities)?),
                ]
            }
            PredictionRows::Labels(values) | PredictionRows::Numbers(values) => {
                let shape = [count, values.width];
                [
                    (OUTPUTS, Tensor::f32(shape, values.outputs.clone())?),
                    (WANTED, Tensor::f32(shape, values.targets.clone())?),
                ]
            }
        };
        let tensors = rows
            .into_iter()
            .chain([(SAMPLES, Tensor::i64([count], indices)?)]);
        Ok(tensors.map(|(name, tensor)| (name.to_owned(), tensor)).collect())
    }

    /// Restores predictions from the output of [`Predictions::tensors`]. `samples` must be the same samples.
    /// Returns `None` if the tensors are invalid.
    pub(crate) fn of_tensors(
        task: Task,
        samples: Arc<Samples>,
        tensors: &[(String, Tensor)],
    ) -> Option<Self> {
        let indices = named(tensors, SAMPLES)?
            .as_i64()?
            .iter()
            .map(|index| u32::try_from(*index).ok())
            .collect::<Option<Vec<u32>>>()?;
        let rows = match task {
            Task::Classes => {
                let numbers = named(tensors, CHOICES)?.as_i64()?.as_chunks::<3>().0.iter();
                let probabilities = named(tensors, PROBABILITIES)?.as_f32()?;
                let choices = numbers.zip(probabilities).map(|(of, probability)| {
                    let [label, predicted, rank] = of.map(|value| u32::try_from(value).ok());
                    Some(ClassPrediction {
                        label: label?,
                        predicted: predicted?,
                        rank: rank?,
                        probability: *probability,
                    })
                });
                PredictionRows::Classes(choices.collect::<Option<_>>()?)
            }
            Task::Labels | Task::Numbers => {
                let outputs = named(tensors, OUTPUTS)?;
                let wanted = named(tensors, WANTED)?;
                let values = OutputValues {
                    width: outputs.shape().dims().get(1).copied()?,
                    outputs: outputs.as_f32()?.to_vec(),
                    targets: wanted.as_f32()?.to_vec(),
                };
                match task {
                    Task::Labels => PredictionRows::Labels(values),
                    _ => PredictionRows::Numbers(values),
                }
            }
        };
        Some(Self {
            samples,
            indices,
            rows,
        })
    }
}

/// Returns the tensor called `name`.
fn named<'a>(tensors: &'a [(String, Tensor)], name: &str) -> Option<&'a Tensor> {
    let found = tensors.iter().find(|(known, _)| known == name);
    found.map(|(_, tensor)| tensor)
}
