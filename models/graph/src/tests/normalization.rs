//! Networks whose first layers normalize the pixels.

use crate::Model;
use crate::build::{batched, float, initializer, ints, model, node};
use crate::onnx::{GraphProto, NodeProto, TensorProto};
use frostline_tensor::{PixelSpec, Tensor};

/// Values of mean and standard deviation for pixels between 0 and 1.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

fn constant(name: &str, dims: &[usize], values: &[f32]) -> TensorProto {
    initializer(name, &Tensor::f32(dims.to_vec(), values.to_vec()).unwrap())
}

/// Returns value of white and number of layers of a network that begins with `nodes`, which read `x` and
/// produce `y`.
fn detected(nodes: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Option<(u8, usize)> {
    let mut node_list = nodes;
    node_list.push(node("GlobalAveragePool", &["y"], &["pooled"]));
    let graph = GraphProto {
        node: node_list,
        input: vec![batched("x", &[3, 8, 8])],
        output: vec![batched("pooled", &[3, 1, 1])],
        initializer,
        ..GraphProto::default()
    };
    let found = Model::from_proto(model(17, graph)).unwrap().input_normalization();
    found.map(|found| (found.white, found.layers.len()))
}

#[test]
fn first_layers_that_normalize_are_detected() {
    let channels = |values: [f32; 3], by: f32| values.map(|value| value * by);
    let efficientnet = || {
        vec![
            node("Transpose", &["x"], &["t"]).with([ints("perm", &[0, 2, 3, 1])]),
            node("Mul", &["t", "scale"], &["a"]),
            node("Sub", &["a", "mean"], &["b"]),
            node("Div", &["b", "std"], &["c"]),
            node("Mul", &["again", "c"], &["d"]),
            node("Transpose", &["d"], &["y"]).with([ints("perm", &[0, 3, 1, 2])]),
        ]
    };
    let weights = |scale: f32| {
        vec![
            constant("scale", &[], &[scale]),
            constant("mean", &[3], &MEAN),
            constant("std", &[1, 1, 1, 3], &STD),
            constant("again", &[3], &STD.map(|std| std.sqrt().recip())),
        ]
    };
    assert_eq!(detected(efficientnet(), weights(1.0 / 255.0)), Some((255, 4)));
    // Pixels between 0 and 1. The factor of 1 does not change them.
    assert_eq!(detected(efficientnet(), weights(1.0)), Some((1, 3)));
    let mobilenet = vec![
        node("Div", &["x", "half"], &["a"]),
        node("Add", &["a", "minus"], &["y"]),
    ];
    let weights = vec![constant("half", &[1], &[127.5]), constant("minus", &[], &[-1.0])];
    assert_eq!(detected(mobilenet, weights), Some((255, 2)));
    let means = vec![node("Sub", &["x", "mean"], &["y"])];
    let weights = vec![constant("mean", &[1, 3, 1, 1], &channels(MEAN, 255.0))];
    assert_eq!(detected(means, weights), Some((255, 1)));
    let statistics = vec![
        node(
            "BatchNormalization",
            &["x", "one", "zero", "mean", "variance"],
            &["y"],
        )
        .with([float("epsilon", 1e-3)]),
    ];
    let weights = vec![
        constant("one", &[3], &[1.0; 3]),
        constant("zero", &[3], &[0.0; 3]),
        constant("mean", &[3], &channels(MEAN, 255.0)),
        constant("variance", &[3], &channels(STD, 255.0).map(|std| std * std)),
    ];
    assert_eq!(detected(statistics, weights), Some((255, 1)));
}

/// Exported with tf2onnx by `recorded/record.py`.
#[test]
fn first_layers_of_keras_are_detected() {
    let files: [(&[u8], usize); 2] = [
        (include_bytes!("recorded/efficientnet.onnx"), 3),
        (include_bytes!("recorded/mobilenet.onnx"), 2),
    ];
    for (bytes, layers) in files {
        let model = Model::from_bytes(bytes.to_vec().into()).unwrap();
        let found = model.input_normalization().unwrap();
        assert_eq!((found.white, found.layers.len()), (255, layers), "{found:?}");
    }
}

#[test]
fn other_first_layers_are_not_taken_for_a_normalization() {
    assert_eq!(detected(vec![node("Identity", &["x"], &["y"])], vec![]), None);
    let slight = vec![
        node("Mul", &["x", "by"], &["a"]),
        node("Add", &["a", "to"], &["y"]),
    ];
    // `transform_input` of torchvision's Inception, for pixels that are already normalized.
    let weights = vec![
        constant("by", &[3, 1, 1], &[0.458, 0.448, 0.45]),
        constant("to", &[3, 1, 1], &[-0.03, -0.088, -0.188]),
    ];
    assert_eq!(detected(slight.clone(), weights), None);
    // Learned factors.
    let weights = vec![
        constant("by", &[3, 1, 1], &[1.3, 1.1, 2.0]),
        constant("to", &[3, 1, 1], &[0.2, -0.1, 0.1]),
    ];
    assert_eq!(detected(slight, weights), None);
    let inverse = vec![node("Div", &["by", "x"], &["y"])];
    assert_eq!(detected(inverse, vec![constant("by", &[], &[0.004])]), None);
    // Another layer reads the pixels as well.
    let both = vec![
        node("Mul", &["x", "by"], &["a"]),
        node("Add", &["a", "x"], &["y"]),
    ];
    assert_eq!(detected(both, vec![constant("by", &[], &[1.0 / 255.0])]), None);
}

#[test]
fn raw_pixels_replace_the_normalization_of_a_recipe() {
    let recipe = PixelSpec::imagenet(224, 224);
    for white in [255, 1] {
        let layers = Vec::new();
        let raw = crate::InputNormalization { layers, white }.raw(recipe);
        assert_eq!((raw.mean, raw.std), ([0.0; 3], [1.0 / f32::from(white); 3]));
        assert_eq!(raw.resize, recipe.resize);
    }
}
