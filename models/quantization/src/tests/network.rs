//! Small networks in int8, executed by ONNX Runtime and compared with `f32`.

use crate::{
    Calibration, QuantizationError, Quantized, Ranges, Scheme, WeightBits, cosine, layers_between, quantize,
    with_cuts_as_outputs,
};
use frostline_engine::{Session, SessionOptions, exact_int8};
use frostline_graph::Model;
use frostline_graph::build::{batched, initializer, int, ints, model, node};
use frostline_graph::onnx::{GraphProto, data_type};
use frostline_tensor::Tensor;

fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next() * 0.5).collect()
}

pub(super) fn tensor(seed: u32, dims: &[usize]) -> Tensor {
    Tensor::f32(dims.to_vec(), noise(seed, dims.iter().product())).unwrap()
}

/// Convolutions with a residual sum, a pool and a grouped convolution, then a linear layer over tokens, and a
/// head.
pub(super) fn network(opset: i64) -> Model {
    let weights = [
        ("w1", vec![8, 3, 3, 3]),
        ("b1", vec![8]),
        ("w2", vec![8, 8, 3, 3]),
        ("w3", vec![8, 1, 3, 3]),
        ("w4", vec![8, 16]),
        ("b4", vec![16]),
        ("w5", vec![5, 16]),
    ];
    let weights = (1..)
        .zip(weights)
        .map(|(seed, (name, dims))| initializer(name, &tensor(seed, &dims)));
    let padded = || [ints("pads", &[1, 1, 1, 1])];
    let mut initializers: Vec<_> = weights.collect();
    initializers.push(frostline_graph::build::integers("tokens", &[0, 8, -1]));
    let graph = GraphProto {
        name: "small".into(),
        node: vec![
            node("Identity", &["b1"], &["copy"]),
            node("Conv", &["image", "w1", "copy"], &["c1"]).with(padded()),
            node("Relu", &["c1"], &["r1"]),
            node("Conv", &["r1", "w2"], &["c2"]).with(padded()),
            node("Add", &["c2", "r1"], &["sum"]),
            node("Relu", &["sum"], &["r2"]),
            node("MaxPool", &["r2"], &["pool"])
                .with([ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])]),
            node("Conv", &["pool", "w3"], &["c3"])
                .with(padded())
                .with([int("group", 8)]),
            node("Reshape", &["c3", "tokens"], &["flat"]),
            node("Transpose", &["flat"], &["turned"]).with([ints("perm", &[0, 2, 1])]),
            node("MatMul", &["turned", "w4"], &["product"]),
            node("Add", &["product", "b4"], &["linear"]),
            node("Tanh", &["linear"], &["tanh"]),
            node("ReduceMean", &["tanh"], &["features"]).with([ints("axes", &[1]), int("keepdims", 0)]),
            node("Gemm", &["features", "w5"], &["scores"]).with([int("transB", 1)]),
        ],
        initializer: initializers,
        input: vec![batched("image", &[3, 8, 8])],
        output: vec![batched("scores", &[5])],
        ..GraphProto::default()
    };
    Model::from_proto(model(opset, graph)).unwrap()
}

pub(super) fn run(model: &Model, rows: &Tensor) -> Vec<(String, Tensor)> {
    let mut session = Session::open(&model.to_bytes().unwrap(), &SessionOptions::default()).unwrap();
    session.run(&[(model.input_name().unwrap(), rows)]).unwrap()
}

fn calibrated(network: &Model, freeze: &str) -> Ranges {
    let mut calibration = Calibration::new(network, freeze).unwrap();
    for seed in [11, 12] {
        let outputs = run(calibration.model(), &tensor(seed, &[4, 3, 8, 8]));
        calibration.add(&outputs);
    }
    calibration.ranges()
}

#[test]
fn rows_are_similar_and_weights_are_bytes() {
    let network = network(17);
    let rows = tensor(13, &[3, 3, 8, 8]);
    let ranges = calibrated(&network, "features");
    let part = |model: &Model| model.slice(None, Some("features")).unwrap();
    let exact = run(&part(&network), &rows);
    for bits in [WeightBits::Eight, WeightBits::Seven] {
        let Quantized {
            model,
            quantized_layers,
            layers,
        } = quantize(&network, "features", &ranges, &Scheme::new(bits)).unwrap();
        assert_eq!((quantized_layers, layers), (4, 4));
        // 8-bit weights saturate on some processors.
        if bits == WeightBits::Seven || exact_int8() {
            let quantized = run(&part(&model), &rows);
            let similarity = cosine(&exact[0].1, &quantized[0].1);
            assert!(similarity > 0.99 && similarity < 1.0, "{bits:?}: {similarity}");
        }
        let frozen = part(&model);
        let floats = frozen
            .graph()
            .initializer
            .iter()
            .filter(|weight| weight.data_type == data_type::FLOAT);
        let largest = floats.map(|weight| weight.raw_data.len()).max();
        // The largest `f32` tensor is the bias of the linear layer's Add. All other `f32` tensors are scales.
        assert_eq!(largest, Some(16 * 4));
        // The layers after the cut are unchanged.
        let head = |model: &Model| {
            model
                .slice(Some("features"), None)
                .map(|head| head.weight("w5").unwrap())
        };
        assert_eq!(head(&model).unwrap(), head(&network).unwrap());
    }
}

#[test]
fn parts_equal_the_whole_bit_for_bit_at_every_cut() {
    let network = network(17);
    let rows = tensor(14, &[2, 3, 8, 8]);
    let ranges = calibrated(&network, "features");
    let scheme = Scheme::new(WeightBits::Seven);
    let model = quantize(&network, "features", &ranges, &scheme).unwrap().model;
    let whole = run(&model.slice(None, Some("features")).unwrap(), &rows);
    let cuts: Vec<String> = model
        .network()
        .unwrap()
        .cuts
        .into_iter()
        .map(|cut| cut.name)
        .collect();
    assert!(
        cuts.iter().all(|cut| !cut.contains('/')),
        "found a cut inside a quantized value: {cuts:?}"
    );
    for cut in ["r1", "r2", "pool", "c3", "turned", "linear", "tanh"] {
        assert!(cuts.iter().any(|known| known == cut), "{cut} of {cuts:?}");
        let prefix = run(&model.slice(None, Some(cut)).unwrap(), &rows);
        let middle = run(&model.slice(Some(cut), Some("features")).unwrap(), &prefix[0].1);
        assert_eq!(middle[0].1, whole[0].1, "{cut}");
    }
    assert!(!cuts.contains(&"c1".to_owned()));
}

#[test]
fn a_scheme_leaves_layers_in_f32() {
    let network = network(17);
    let rows = tensor(15, &[2, 3, 8, 8]);
    let ranges = calibrated(&network, "features");
    let mut scheme = Scheme::new(WeightBits::Eight);
    scheme
        .in_f32
        .extend(["c1", "c2", "c3", "product"].map(str::to_owned));
    let Quantized {
        model,
        quantized_layers,
        layers,
    } = quantize(&network, "features", &ranges, &scheme).unwrap();
    assert_eq!((quantized_layers, layers), (0, 4));
    let part = |model: &Model| run(&model.slice(None, Some("features")).unwrap(), &rows);
    assert_eq!(part(&model), part(&network));
}

#[test]
fn layers_between_cuts_and_values_at_cuts() {
    let network = network(17);
    assert_eq!(layers_between(&network, None, "r1").unwrap(), ["c1"]);
    assert_eq!(layers_between(&network, Some("r1"), "c3").unwrap(), ["c2", "c3"]);
    let cuts = network.network().unwrap().cuts;
    let cuts: Vec<_> = cuts
        .into_iter()
        .filter(|cut| ["r1", "tanh"].contains(&cut.name.as_str()))
        .collect();
    let outputs = run(
        &with_cuts_as_outputs(&network, &cuts).unwrap(),
        &tensor(16, &[2, 3, 8, 8]),
    );
    let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["r1", "tanh"]);
    assert_eq!(outputs[0].1.shape().dims(), [2, 8, 8, 8]);
}

#[test]
fn a_network_that_cannot_be_quantized_is_refused() {
    let refused = |model: &Model, freeze| Calibration::new(model, freeze).map(drop).unwrap_err();
    assert!(matches!(
        refused(&network(11), "r1"),
        QuantizationError::Opset { found: 11 }
    ));
    let wide = network(17);
    let scheme = Scheme::new(WeightBits::Eight);
    let missing = quantize(&wide, "features", &Ranges::default(), &scheme).map(drop);
    assert!(matches!(missing.unwrap_err(), QuantizationError::NoRange { .. }));
    let mut calibration = Calibration::new(&wide, "features").unwrap();
    let mut rows = noise(1, 3 * 64);
    rows[5] = f32::INFINITY;
    let outputs = run(calibration.model(), &Tensor::f32([1, 3, 8, 8], rows).unwrap());
    calibration.add(&outputs);
    let refused = quantize(&wide, "features", &calibration.ranges(), &scheme).map(drop);
    assert!(matches!(
        refused.unwrap_err(),
        QuantizationError::NotFinite { .. }
    ));
    let tail = network(17).slice(Some("product"), None).unwrap();
    assert!(matches!(
        refused_tail(&tail),
        QuantizationError::NoQuantizableLayer
    ));
}

fn refused_tail(tail: &Model) -> QuantizationError {
    Calibration::new(tail, "features").map(drop).unwrap_err()
}
