//! Randomly generated networks. The slices must compute the same as the complete network at every cut.

use super::support::{assert_parts_equal_whole, noisy};
use crate::Model;
use crate::build::{batched, float, initializer, int, integers, ints, model, node};
use crate::onnx::{GraphProto, NodeProto, TensorProto};
use frostline_tensor::{Data, Tensor};
use proptest::prelude::*;

/// Step of a random network, with an image-like input and output.
#[derive(Debug, Clone, Copy)]
enum Step {
    Convolution,
    Residual,
    Branches,
    Normalization,
    Pool,
    Patches,
    BatchBehind,
    ScaledByShape,
    Attention,
    ConstantBranch,
    Quantization,
}

const STEPS: &[Step] = &[
    Step::Convolution,
    Step::Residual,
    Step::Branches,
    Step::Normalization,
    Step::Pool,
    Step::Patches,
    Step::BatchBehind,
    Step::ScaledByShape,
    Step::Attention,
    Step::ConstantBranch,
    Step::Quantization,
];

/// Network under construction. The current value has the shape `[batch, channels, size, size]`.
struct Draft {
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    value: String,
    channels: usize,
    size: usize,
    count: usize,
}

impl Draft {
    fn new(channels: usize, size: usize) -> Self {
        Self {
            nodes: vec![],
            weights: vec![],
            value: "image".into(),
            channels,
            size,
            count: 0,
        }
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn weight(&mut self, dims: &[usize]) -> String {
        let name = format!("w{}", self.weights.len());
        self.weights
            .push(initializer(&name, &noisy(self.weights.len() as u64, dims)));
        name
    }

    fn integers(&mut self, values: &[i64]) -> String {
        let name = format!("i{}", self.weights.len());
        self.weights.push(integers(&name, values));
        name
    }

    fn add(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<crate::onnx::AttributeProto>,
    ) -> String {
        let output = self.name();
        self.nodes
            .push(node(operator, inputs, &[&output]).with(attributes));
        output
    }

    fn convolution(&mut self, from: &str, channels: usize) -> String {
        let (weight, bias) = (
            self.weight(&[channels, self.channels, 3, 3]),
            self.weight(&[channels]),
        );
        self.add("Conv", &[from, &weight, &bias], vec![ints("pads", &[1, 1, 1, 1])])
    }

    fn take(&mut self, step: Step) {
        let from = self.value.clone();
        self.value = match step {
            Step::Convolution => {
                let out = self.convolution(&from, self.channels + 1);
                self.channels += 1;
                self.add("Relu", &[&out], vec![])
            }
            Step::Residual => {
                let inner = self.convolution(&from, self.channels);
                let inner = self.add("Sigmoid", &[&inner], vec![]);
                self.add("Add", &[&from, &inner], vec![])
            }
            Step::Branches => {
                let left = self.convolution(&from, 2);
                let window = vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1, 1, 1, 1])];
                let right = self.add("MaxPool", &[&from], window);
                self.channels += 2;
                self.add("Concat", &[&left, &right], vec![int("axis", 1)])
            }
            Step::Normalization => self.normalization(&from),
            Step::Pool if self.size < 4 => self.add("Tanh", &[&from], vec![]),
            Step::Pool => {
                self.size /= 2;
                let window = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
                self.add("AveragePool", &[&from], window)
            }
            Step::Patches => self.patches(&from),
            Step::BatchBehind => {
                let order = vec![ints("perm", &[1, 2, 0, 3])];
                let behind = self.add("Transpose", &[&from], order);
                let scale = self.weight(&[self.channels, 1, 1, self.size]);
                let scaled = self.add("Mul", &[&behind, &scale], vec![]);
                self.add("Transpose", &[&scaled], vec![ints("perm", &[2, 0, 1, 3])])
            }
            Step::ScaledByShape => {
                let shape = self.add("Shape", &["image"], vec![]);
                let axis = self.integers(&[2]);
                let size = self.add("Gather", &[&shape, &axis], vec![int("axis", 0)]);
                let size = self.add("Cast", &[&size], vec![int("to", 1)]);
                let root = self.add("Sqrt", &[&size], vec![]);
                self.add("Div", &[&from, &root], vec![])
            }
            Step::Attention => self.attention(&from),
            Step::ConstantBranch => {
                let left = self.weight(&[self.channels, 1, 1]);
                let right = self.weight(&[1, self.size, 1]);
                let constant = self.add("Add", &[&left, &right], vec![]);
                self.add("Mul", &[&from, &constant], vec![])
            }
            Step::Quantization => {
                let scale = self.name();
                self.weights.push(initializer(
                    &scale,
                    &Tensor::f32([0_usize; 0], vec![0.01]).unwrap(),
                ));
                let zero_point = self.name();
                self.weights.push(initializer(
                    &zero_point,
                    &Tensor::new([0_usize; 0], Data::U8(vec![100])).unwrap(),
                ));
                let inputs = [from.as_str(), &scale, &zero_point];
                let integers = self.add("QuantizeLinear", &inputs, vec![]);
                self.add("DequantizeLinear", &[&integers, &scale, &zero_point], vec![])
            }
        };
    }

    fn normalization(&mut self, from: &str) -> String {
        let scale = self.weight(&[self.channels]);
        let bias = self.weight(&[self.channels]);
        let mean = self.weight(&[self.channels]);
        let noise = self.weight(&[self.channels]);
        let variance = self.add("Exp", &[&noise], vec![]);
        let inputs = [from, &scale, &bias, &mean, &variance];
        self.add("BatchNormalization", &inputs, vec![float("epsilon", 0.01)])
    }

    /// Reshapes to `[batch, positions, channels]` and back. The targets are computed from the shapes of the
    /// value and of the input.
    fn patches(&mut self, from: &str) -> String {
        let channels = self.channels as i64;
        let size = self.size as i64;
        let batch = |draft: &mut Self, of: &str| {
            let shape = draft.add("Shape", &[of], vec![]);
            let first = draft.integers(&[0]);
            draft.add("Gather", &[&shape, &first], vec![int("axis", 0)])
        };
        let there = batch(self, from);
        let rest = self.integers(&[channels, -1]);
        let target = self.add("Concat", &[&there, &rest], vec![int("axis", 0)]);
        let flat = self.add("Reshape", &[from, &target], vec![]);
        let tokens = self.add("Transpose", &[&flat], vec![ints("perm", &[0, 2, 1])]);
        let scale = self.weight(&[self.channels]);
        let normal = self.add("LayerNormalization", &[&tokens, &scale], vec![int("axis", -1)]);
        let flat = self.add("Transpose", &[&normal], vec![ints("perm", &[0, 2, 1])]);
        let back = batch(self, "image");
        let rest = self.integers(&[channels, size, size]);
        let target = self.add("Concat", &[&back, &rest], vec![int("axis", 0)]);
        self.add("Reshape", &[&flat, &target], vec![])
    }

    /// Attention between rows. The batch is in the middle, like in older exports: `[size, batch * channels,
    /// size]`.
    fn attention(&mut self, from: &str) -> String {
        let channels = self.channels as i64;
        let size = self.size as i64;
        let rows_first = self.add("Transpose", &[from], vec![ints("perm", &[2, 0, 1, 3])]);
        let joined = self.integers(&[size, -1, size]);
        let joined = self.add("Reshape", &[&rows_first, &joined], vec![]);
        let heads = self.add("Transpose", &[&joined], vec![ints("perm", &[1, 0, 2])]);
        let turned = self.add("Transpose", &[&heads], vec![ints("perm", &[0, 2, 1])]);
        let scores = self.add("MatMul", &[&heads, &turned], vec![]);
        let weights = self.add("Softmax", &[&scores], vec![int("axis", -1)]);
        let mixed = self.add("MatMul", &[&weights, &heads], vec![]);
        let split = self.integers(&[-1, channels, size, size]);
        self.add("Reshape", &[&mixed, &split], vec![])
    }

    fn finish(mut self, input: [usize; 3]) -> Model {
        let from = self.value.clone();
        let pooled = self.add("GlobalAveragePool", &[&from], vec![]);
        let features = self.add("Flatten", &[&pooled], vec![]);
        let (weight, bias) = (self.weight(&[5, self.channels]), self.weight(&[5]));
        let classifier = node("Gemm", &[&features, &weight, &bias], &["scores"]).with([int("transB", 1)]);
        self.nodes.push(classifier);
        let graph = GraphProto {
            name: "random".into(),
            node: self.nodes,
            initializer: self.weights,
            input: vec![batched("image", &input)],
            output: vec![batched("scores", &[5])],
            ..GraphProto::default()
        };
        Model::from_proto(model(17, graph)).unwrap()
    }
}

fn network(steps: &[Step]) -> Model {
    let mut draft = Draft::new(3, 8);
    steps.iter().for_each(|&step| draft.take(step));
    draft.finish([3, 8, 8])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn parts_equal_the_whole_at_every_cut(steps in prop::collection::vec(prop::sample::select(STEPS), 1..7)) {
        let model = network(&steps);
        let network = model.network().unwrap();
        // A cut exists after every step and around the head. Inputs of quantizations are not cuts.
        let quantizations = steps.iter().filter(|step| matches!(step, Step::Quantization)).count();
        prop_assert!(network.cuts.len() + quantizations >= steps.len() + 3, "{:?}", network.cuts);
        let cuts: Vec<String> = network.cuts.iter().map(|cut| cut.name.clone()).filter(|name| name != "scores").collect();
        assert_parts_equal_whole(&model, &cuts);
        for cut in &cuts {
            let suffix = || model.slice(Some(cut), None).unwrap().to_bytes().unwrap();
            prop_assert_eq!(suffix(), suffix());
        }
    }
}

#[test]
fn a_part_of_a_part_is_the_same_part() {
    let model = network(STEPS);
    let network = model.network().unwrap();
    let early = &network.cuts[3].name;
    let late = &network.cuts[network.cuts.len() - 5].name;
    let prefix = model.slice(None, Some(late)).unwrap();
    assert_eq!(
        prefix.slice(None, Some(early)).unwrap(),
        model.slice(None, Some(early)).unwrap()
    );
    let whole = model.slice(Some(early), Some(late)).unwrap();
    assert_eq!(prefix.slice(Some(early), None).unwrap(), whole);
    let again = Model::from_bytes(whole.to_bytes().unwrap().into()).unwrap();
    assert_eq!(again.sha256().unwrap(), whole.sha256().unwrap());
}
