//! Network of the tests.

use frostline_graph::Model;
use frostline_graph::build::{batched, initializer, int, ints, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;

/// Channels of the convolutions.
const CHANNELS: usize = 6;

/// conv -> relu -> conv -> relu -> pooled -> features -> 7 classes.
pub(crate) fn network() -> Model {
    let mut state = 1_u32;
    let mut random = |count: usize| -> Vec<f32> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(next).map(|value: f32| value * 0.3).collect()
    };
    let weights = [
        ("w1", vec![CHANNELS, 3, 3, 3]),
        ("w2", vec![CHANNELS, CHANNELS, 3, 3]),
        ("w3", vec![7, CHANNELS]),
        ("b3", vec![7]),
    ];
    let weights = weights.map(|(name, shape)| {
        let tensor = Tensor::f32(shape.clone(), random(shape.iter().product())).unwrap();
        initializer(name, &tensor)
    });
    let padded = || [ints("pads", &[1, 1, 1, 1]), ints("kernel_shape", &[3, 3])];
    let graph = GraphProto {
        name: "tiny".into(),
        node: vec![
            node("Conv", &["image", "w1"], &["c1"]).with(padded()),
            node("Relu", &["c1"], &["r1"]),
            node("Conv", &["r1", "w2"], &["c2"]).with(padded()),
            node("Relu", &["c2"], &["r2"]),
            node("GlobalAveragePool", &["r2"], &["pooled"]),
            node("Flatten", &["pooled"], &["features"]).with([int("axis", 1)]),
            node("Gemm", &["features", "w3", "b3"], &["scores"]).with([int("transB", 1)]),
        ],
        initializer: weights.to_vec(),
        input: vec![batched("image", &[3, 8, 8])],
        output: vec![batched("scores", &[7])],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}
