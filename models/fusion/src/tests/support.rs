//! Builds small networks and executes them with ONNX Runtime.

use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_graph::build::{batched, initializer, integers, ints, model, node};
use frostline_graph::onnx::{AttributeProto, GraphProto, NodeProto, TensorProto};
use frostline_tensor::Tensor;

/// Returns numbers between -1 and 1.
pub(super) fn noise(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u32 * 7919 + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A network under construction. Methods add a node and return the name of its output.
#[derive(Default)]
pub(super) struct Builder {
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
}

impl Builder {
    pub(super) fn add(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.add_with(operator, inputs, [])
    }

    pub(super) fn add_with(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = AttributeProto>,
    ) -> String {
        let name = format!("{}{}", operator.to_lowercase(), self.nodes.len());
        self.nodes.push(node(operator, inputs, &[&name]).with(attributes));
        name
    }

    /// Adds a node with several outputs.
    pub(super) fn split(&mut self, value: &str, axis: i64, sizes: &[i64]) -> Vec<String> {
        let sizes_name = self.integers(sizes);
        let names: Vec<String> = (0..sizes.len())
            .map(|part| format!("split{}.{part}", self.nodes.len()))
            .collect();
        let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let split = node("Split", &[value, &sizes_name], &outputs);
        self.nodes
            .push(split.with([frostline_graph::build::int("axis", axis)]));
        names
    }

    pub(super) fn weight(&mut self, dims: &[usize]) -> String {
        let values = noise(self.weights.len(), dims.iter().product());
        self.constant(dims, values)
    }

    pub(super) fn constant(&mut self, dims: &[usize], values: Vec<f32>) -> String {
        let name = format!("weight{}", self.weights.len());
        let tensor = Tensor::f32(dims.to_vec(), values).unwrap();
        self.weights.push(initializer(&name, &tensor));
        name
    }

    pub(super) fn integers(&mut self, values: &[i64]) -> String {
        let name = format!("integers{}", self.weights.len());
        self.weights.push(integers(&name, values));
        name
    }

    pub(super) fn reshape(&mut self, value: &str, target: &[i64]) -> String {
        let target = self.integers(target);
        self.add("Reshape", &[value, &target])
    }

    pub(super) fn transpose(&mut self, value: &str, order: &[i64]) -> String {
        self.add_with("Transpose", &[value], [ints("perm", order)])
    }

    pub(super) fn scaled(&mut self, value: &str, factor: f32) -> String {
        let factor = self.constant(&[], vec![factor]);
        self.add("Mul", &[value, &factor])
    }

    pub(super) fn linear(&mut self, value: &str, from: usize, to: usize) -> String {
        let weight = self.weight(&[from, to]);
        let bias = self.weight(&[to]);
        let product = self.add("MatMul", &[value, &weight]);
        self.add("Add", &[&product, &bias])
    }

    /// Returns the network from `x` with these sizes per sample to the outputs, each with their sizes.
    pub(super) fn network(self, x: &[usize], outputs: &[(&str, &[usize])]) -> Model {
        let graph = GraphProto {
            name: "test".into(),
            node: self.nodes,
            initializer: self.weights,
            input: vec![batched("x", x)],
            output: outputs.iter().map(|(name, dims)| batched(name, dims)).collect(),
            ..GraphProto::default()
        };
        Model::from_proto(model(17, graph)).unwrap()
    }
}

/// Runs the network with noise as input, for a batch of two and a batch of three.
fn outputs(model: &Model, dims: &[usize]) -> Vec<(String, Tensor)> {
    let mut session = Session::open(&model.to_bytes().unwrap(), &SessionOptions::default()).unwrap();
    let mut run = |batch| {
        let dims = [&[batch], dims].concat();
        let values = noise(batch, dims.iter().product());
        let tensor = Tensor::f32(dims, values).unwrap();
        session.run(&[("x", &tensor)]).unwrap()
    };
    [run(2), run(3)].concat()
}

/// Asserts that both networks have the same outputs.
pub(super) fn assert_same(expected: &Model, found: &Model, dims: &[usize]) {
    let [expected, found] = [expected, found].map(|model| outputs(model, dims));
    for ((name, expected), (other, found)) in expected.iter().zip(&found) {
        assert_eq!(name, other);
        assert_eq!(expected.shape(), found.shape(), "{name}");
        let values = expected.as_f32().unwrap();
        let largest = values.iter().fold(1e-3_f32, |most, value| most.max(value.abs()));
        for (expected, found) in values.iter().zip(found.as_f32().unwrap()) {
            let difference = (expected - found).abs() / largest;
            assert!(difference < 1e-4, "{name}: {expected} {found}");
        }
    }
}

/// Returns the number of nodes with this operator.
pub(super) fn count(model: &Model, operator: &str) -> usize {
    let nodes = model.nodes().iter();
    nodes.filter(|node| node.op_type == operator).count()
}
