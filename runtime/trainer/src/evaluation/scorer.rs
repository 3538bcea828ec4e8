use crate::TrainerError;
use crate::compute::Forward;
use frostline_client::Task;
use frostline_graph::Model;
use frostline_tensor::{Data, Tensor};

/// A network with scores as outputs. If it ends in a softmax or sigmoid, probabilities are converted back to
/// logits.
pub(crate) struct Scorer {
    forward: Forward,
    ending: Ending,
}

/// Kind of output operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Scores,
    Softmax,
    Sigmoid,
}

impl Scorer {
    /// Scores the outputs of `forward`, which runs `model`.
    pub(crate) fn new(forward: Forward, model: &Model, task: Task) -> Self {
        Self {
            forward,
            ending: Ending::detect(model, task),
        }
    }

    /// Returns scores `[rows, outputs]`: logits for classes and labels, plain values for numbers.
    pub(crate) fn run(&mut self, rows: &Tensor) -> Result<Tensor, TrainerError> {
        let outputs = self.forward.run(rows)?;
        match (self.ending, outputs.as_f32()) {
            (Ending::Scores, _) | (_, None) => Ok(outputs),
            (ending, Some(values)) => {
                let scores = values.iter().map(|value| ending.score(*value)).collect();
                Ok(Tensor::new(outputs.shape().clone(), Data::F32(scores))?)
            }
        }
    }
}

impl Ending {
    fn detect(model: &Model, task: Task) -> Self {
        let output = model.outputs().first().map(|output| output.name.as_str());
        let makes = |names: &[String]| names.first().map(String::as_str) == output;
        let last = model.nodes().iter().find(|node| makes(&node.output));
        match (last.map(|node| node.op_type.as_str()), task) {
            (_, Task::Numbers) => Self::Scores,
            (Some("Softmax"), _) => Self::Softmax,
            (Some("Sigmoid"), _) => Self::Sigmoid,
            _ => Self::Scores,
        }
    }

    /// Converts a probability back to a logit; for classes, up to a constant. Probabilities rounded to 0 or 1
    /// are clamped, so scores stay finite.
    fn score(self, value: f32) -> f32 {
        let probability = f64::from(value).clamp(f64::from(f32::MIN_POSITIVE), 1.0);
        match self {
            Self::Scores => value,
            Self::Softmax => probability.ln() as f32,
            Self::Sigmoid => {
                let less = probability.min(1.0 - f64::EPSILON);
                (less / (1.0 - less)).ln() as f32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{Softmax, sigmoid};
    use crate::tests::network;
    use frostline_engine::{Interrupt, SessionOptions};
    use frostline_graph::build::node;

    /// The test network with `operator` appended to the scores.
    fn ending_with(operator: &str) -> Model {
        let mut proto = network().into_proto();
        let graph = proto.graph.as_mut().unwrap();
        graph.node.push(node(operator, &["scores"], &["said"]));
        graph.output[0].name = "said".into();
        Model::from_proto(proto).unwrap()
    }

    #[test]
    fn probabilities_that_a_network_makes_are_taken_back() {
        let open = |model: &Model, task| {
            let (options, interrupt) = (SessionOptions::default(), Interrupt::new());
            let forward = Forward::open(model, 2, &options, &interrupt, "testing").unwrap();
            Scorer::new(forward, model, task)
        };
        let pixels = (0..2 * 3 * 8 * 8).map(|index| (index % 13) as f32 / 3.0 - 2.0);
        let rows = Tensor::f32([2, 3, 8, 8], pixels.collect()).unwrap();
        let plain = open(&network(), Task::Classes).run(&rows).unwrap();
        let plain = plain.as_f32().unwrap();

        let said = open(&ending_with("Softmax"), Task::Classes).run(&rows).unwrap();
        for (before, after) in plain.chunks(7).zip(said.as_f32().unwrap().chunks(7)) {
            for (left, right) in before.iter().zip(after) {
                let (left, right) = (
                    Softmax::from_row(before).probability(*left),
                    Softmax::from_row(after).probability(*right),
                );
                assert!((left - right).abs() < 1e-5, "{left} {right}");
            }
        }
        let said = open(&ending_with("Sigmoid"), Task::Labels).run(&rows).unwrap();
        for (before, after) in plain.iter().zip(said.as_f32().unwrap()) {
            assert!((sigmoid(*before) - sigmoid(*after)).abs() < 1e-5);
        }
        // Numeric outputs between 0 and 1 are not converted.
        let said = open(&ending_with("Sigmoid"), Task::Numbers).run(&rows).unwrap();
        assert!((sigmoid(plain[0]) - said.as_f32().unwrap()[0]).abs() < 1e-5);
        for sure in [0.0, 1.0] {
            assert!(Ending::Sigmoid.score(sure).is_finite() && Ending::Softmax.score(sure).is_finite());
        }
    }
}
