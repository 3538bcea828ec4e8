use crate::TrainerError;
use frostline_compute::Forward;
use frostline_graph::Model;
use frostline_graph::onnx::NodeProto;
use frostline_graph::tensors::in_single_precision;
use frostline_job::Task;
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

    /// Returns scores `[rows, outputs]` in `f32`: logits for classes and labels, plain values for numbers.
    pub(crate) fn run(&mut self, rows: &Tensor) -> Result<Tensor, TrainerError> {
        let outputs = in_single_precision(self.forward.run(rows)?);
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
        let mut last = node_with_output(model, output);
        // Networks in half precision convert the probabilities at the end.
        while let Some(cast) = last.filter(|node| node.casts_to_float()) {
            last = node_with_output(model, cast.input_name(0));
        }
        match (last.map(|node| node.op_type.as_str()), task) {
            (_, Task::Numbers) => Self::Scores,
            (Some("Softmax"), _) => Self::Softmax,
            (Some("Sigmoid"), _) => Self::Sigmoid,
            _ => Self::Scores,
        }
    }

    /// Converts a probability back to a logit; for classes, up to a constant. Probabilities rounded to 0 or 1
    /// are clamped, so scores stay finite. NaN and infinities are no probabilities, and become NaN.
    fn score(self, value: f32) -> f32 {
        if self != Self::Scores && !value.is_finite() {
            return f32::NAN;
        }
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

fn node_with_output<'a>(model: &'a Model, name: Option<&str>) -> Option<&'a NodeProto> {
    model.nodes().iter().find(|node| node.output_name(0) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{Softmax, sigmoid};
    use crate::tests::network;
    use frostline_engine::{Interrupt, SessionOptions};
    use frostline_graph::build::{Axis, int, node, value};
    use frostline_graph::onnx::data_type;

    /// The test network with `operator` appended to the scores.
    fn ending_with(operator: &str) -> Model {
        let mut proto = network().into_proto();
        let graph = proto.graph.as_mut().unwrap();
        graph.node.push(node(operator, &["scores"], &["said"]));
        graph.output[0].name = "said".into();
        Model::from_proto(proto).unwrap()
    }

    #[test]
    fn outputs_in_half_precision_are_scores_too() {
        let half = data_type::FLOAT16;
        let scores = |operator: &str| {
            let mut proto = ending_with(operator).into_proto();
            let graph = proto.graph.as_mut().unwrap();
            graph
                .node
                .push(node("Cast", &["said"], &["half"]).with([int("to", half.into())]));
            graph.output = vec![value("half", half, &[Axis::batch(), Axis::Fixed(7)])];
            let model = Model::from_proto(proto).unwrap();
            let options = SessionOptions::default();
            let interrupt = Interrupt::new();
            let forward = Forward::open(&model, 2, &options, &interrupt, "testing").unwrap();
            let rows = Tensor::f32([1, 3, 8, 8], vec![0.5; 3 * 8 * 8]).unwrap();
            let scores = Scorer::new(forward, &model, Task::Classes).run(&rows).unwrap();
            scores.as_f32().unwrap().to_vec()
        };
        let plain = scores("Identity");
        let taken_back = scores("Softmax");
        assert_eq!((plain.len(), taken_back.len()), (7, 7));
        // Logits from probabilities differ by a constant.
        let moved = plain[0] - taken_back[0];
        for (plain, taken_back) in plain.iter().zip(taken_back) {
            assert!((plain - taken_back - moved).abs() < 0.02, "{plain} {taken_back}");
        }
    }

    #[test]
    fn probabilities_that_a_network_makes_are_taken_back() {
        let open = |model: &Model, task| {
            let options = SessionOptions::default();
            let interrupt = Interrupt::new();
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
                let left = Softmax::from_row(before).probability(*left);
                let right = Softmax::from_row(after).probability(*right);
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
        for undefined in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(Ending::Sigmoid.score(undefined).is_nan() && Ending::Softmax.score(undefined).is_nan());
        }
    }
}
