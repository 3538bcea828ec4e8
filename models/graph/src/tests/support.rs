//! Loads, fills and executes the shared networks.

use crate::Model;
use crate::onnx::data_type;
use bytes::Bytes;
use frostline_engine::{Session, SessionOptions};
use frostline_needs::shared_file;
use frostline_tensor::Tensor;

/// Returns a skeleton network, which has shapes but no weights.
pub(super) fn skeleton(name: &str) -> Model {
    let path = shared_file(&format!("models/skeletons/{name}.onnx"));
    Model::read(path).expect("the skeleton is readable")
}

/// Returns a SqueezeNet with weights.
pub(super) fn squeezenet(file: &str) -> Model {
    Model::read(shared_file(&format!("data/{file}"))).expect("the network is readable")
}

/// Returns normally distributed numbers with a standard deviation of 0.5. They only depend on the seed.
pub(super) fn noise(seed: u64, count: usize) -> Vec<f32> {
    crate::initialize::Normal::new(seed, 0.5).draw(count)
}

/// Returns a tensor with random numbers.
pub(super) fn noisy(seed: u64, dims: &[usize]) -> Tensor {
    Tensor::f32(dims.to_vec(), noise(seed, dims.iter().product())).unwrap()
}

/// Fills the missing weights of a skeleton. Matrices and kernels get noise with He's variance, scales and
/// variances get values near 1, and all others get values near 0. For speed, large weights repeat a block of
/// noise at varying offsets.
pub(super) fn filled(skeleton: &Model) -> Model {
    const BLOCK: usize = 65_537;
    let block = noise(7, 2 * BLOCK);
    let mut graph = skeleton.graph().clone();
    for (index, weight) in graph.initializer.iter_mut().enumerate() {
        let dims: Vec<usize> = weight.dims.iter().map(|&dim| dim as usize).collect();
        let count: usize = dims.iter().product();
        if weight.data_type != data_type::FLOAT || count <= 16 || !weight.raw_data.is_empty() {
            continue;
        }
        let positive = ["var", "weight", "gamma", "scale"]
            .iter()
            .any(|word| weight.name.contains(word));
        let (center, spread) = match dims.as_slice() {
            [_, rest @ ..] if !rest.is_empty() => (0.0, (6.0 / rest.iter().product::<usize>() as f32).sqrt()),
            _ if positive => (1.0, 0.1),
            _ => (0.0, 0.01),
        };
        let mut raw = Vec::with_capacity(4 * count);
        for start in (0..count).step_by(BLOCK) {
            let offset = (index * 7919 + start / BLOCK * 104_729) % BLOCK;
            let values = &block[offset..offset + BLOCK.min(count - start)];
            raw.extend(
                values
                    .iter()
                    .flat_map(|value| (center + spread * value).to_le_bytes()),
            );
        }
        weight.raw_data = Bytes::from(raw);
    }
    skeleton.with_graph(graph).unwrap()
}

/// Model with an open session.
pub(super) struct Runner(Session);

impl Runner {
    pub(super) fn open(model: &Model) -> Self {
        let options = SessionOptions {
            threads: 2,
            ..SessionOptions::default()
        };
        Self(Session::open(&model.to_bytes().unwrap(), &options).expect("the engine opens the model"))
    }

    /// Returns the output for the input.
    pub(super) fn run(&mut self, input: &Tensor) -> Tensor {
        let name = self.0.inputs()[0].name.clone();
        self.0
            .run(&[(&name, input)])
            .expect("the model runs")
            .swap_remove(0)
            .1
    }
}

pub(super) fn run(model: &Model, input: &Tensor) -> Tensor {
    Runner::open(model).run(input)
}

/// Asserts that two results differ by at most 1e-4 of the largest value.
#[track_caller]
pub(super) fn assert_close(actual: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(actual.shape(), expected.shape(), "{what}");
    let actual = actual.as_f32().unwrap();
    let expected = expected.as_f32().unwrap();
    let scale = expected
        .iter()
        .fold(1e-3_f32, |most, value| most.max(value.abs()));
    let worst = actual
        .iter()
        .zip(expected)
        .fold(0.0_f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(
        worst.is_finite() && scale.is_finite() && worst <= 1e-4 * scale,
        "{what}: difference {worst} at scale {scale}"
    );
}

/// Asserts for all cuts that prefix and suffix compute the same as the complete network, with batches of 2
/// and 1.
pub(super) fn assert_parts_equal_whole(model: &Model, cuts: &[String]) {
    let network = model.network().unwrap();
    let input = noisy(3, network.input.shape.batched(2).dims());
    let expected = run(model, &input);
    for cut in cuts {
        let prefix = model.slice(None, Some(cut)).unwrap();
        let suffix = model.slice(Some(cut), None).unwrap();
        let mut prefix = Runner::open(&prefix);
        let mut suffix = Runner::open(&suffix);
        let activations = prefix.run(&input);
        assert_eq!(
            activations.shape(),
            &network.cut(cut).unwrap().shape.batched(2),
            "{cut}"
        );
        assert_close(&suffix.run(&activations), &expected, cut);
        let alone = prefix.run(&input.slice_rows(1, 2).unwrap());
        assert_close(&alone, &activations.slice_rows(1, 2).unwrap(), cut);
        assert_close(&suffix.run(&alone), &expected.slice_rows(1, 2).unwrap(), cut);
    }
}
