//! Straight-through gradients of quantized values, and quantization that is refused.

use super::harness::{Batch, Net, PLAIN, Trained, tensor, values};
use crate::TrainingGraph;
use frostline_graph::Model;
use frostline_graph::build::{int, node};
use frostline_graph::onnx::data_type;
use frostline_tensor::DType;

const ROW: [usize; 1] = [16];

/// Network that quantizes `h` to signed bytes with this scale, moves the bytes and dequantizes them.
fn quantized(scale: f64) -> Model {
    let bytes = int("output_dtype", data_type::INT8.into());
    Net::of(&ROW, DType::F32)
        .opset(21)
        .probed(&ROW)
        .stored("scale", &tensor(&[], DType::F32, vec![scale]))
        .node(node("QuantizeLinear", &["h", "scale"], &["q"]).with([bytes]))
        .ints("dims", &[0, 4, 4])
        .op("Reshape", &["q", "dims"], "square")
        .op("DequantizeLinear", &["square", "scale"], "y")
        .classified("y", 16)
        .model()
}

fn plain() -> Model {
    Net::of(&ROW, DType::F32).probed(&ROW).classified("h", 16).model()
}

/// Returns the gradient of the probe.
fn gradient(model: &Model, batch: &Batch) -> Vec<f64> {
    let rows = batch.activations.shape().dims()[0];
    Trained::new(model, rows, PLAIN)
        .first_gradients(batch)
        .swap_remove(0)
}

#[test]
fn the_gradient_passes_quantization_unchanged() {
    let batch = Batch::random(&plain(), 3, 5);
    let actual = gradient(&quantized(1.0 / 100.0), &batch);
    let expected = gradient(&plain(), &batch);
    for (actual, expected) in actual.iter().zip(&expected) {
        assert!((actual - expected).abs() < 0.01, "{actual}, {expected}");
    }
    assert!(expected.iter().any(|value| value.abs() > 0.05));
}

#[test]
fn the_gradient_is_zero_where_the_range_clips() {
    let model = quantized(1.0 / 512.0);
    let batch = Batch::random(&model, 1, 5);
    let probe = values(&model.weight("probe").unwrap());
    let inputs = values(&batch.activations);
    let mut clipped = 0;
    for ((gradient, probe), input) in gradient(&model, &batch).iter().zip(probe).zip(inputs) {
        let steps = input * probe * 512.0;
        let inside = (-128.5..127.5).contains(&steps);
        assert_eq!(*gradient != 0.0, inside, "{steps}");
        clipped += usize::from(!inside);
    }
    assert!((1..16).contains(&clipped), "{clipped}");
}

#[test]
fn a_weight_that_is_quantized_for_every_use_is_trained() {
    let axis = || int("axis", 0);
    let net = |quantizes: bool| {
        let bytes = int("output_dtype", data_type::INT8.into());
        let net = Net::of(&ROW, DType::F32)
            .opset(21)
            .probed(&ROW)
            .weight("w", &[16, 2])
            .stored("scales", &tensor(&[16], DType::F32, vec![0.01; 16]));
        let net = match quantizes {
            true => net
                .node(node("QuantizeLinear", &["w", "scales"], &["q"]).with([axis(), bytes]))
                .node(node("DequantizeLinear", &["q", "scales"], &["weight"]).with([axis()])),
            false => net.op("Identity", &["w"], "weight"),
        };
        net.op("MatMul", &["h", "weight"], "y").classified("y", 2).model()
    };
    let batch = Batch::random(&net(true), 3, 5);
    let gradient = |model: &Model| {
        Trained::new(model, 3, PLAIN)
            .first_gradients(&batch)
            .swap_remove(1)
    };
    let expected = gradient(&net(false));
    assert!(expected.iter().any(|value| value.abs() > 0.01), "{expected:?}");
    for (actual, expected) in gradient(&net(true)).iter().zip(expected) {
        assert!((actual - expected).abs() < 0.01, "{actual}, {expected}");
    }
}

#[test]
fn a_range_from_the_batch_clips_nothing() {
    let dynamic = Net::of(&ROW, DType::F32)
        .probed(&ROW)
        .node(node("DynamicQuantizeLinear", &["h"], &["q", "scale", "zero"]))
        .op("DequantizeLinear", &["q", "scale", "zero"], "y")
        .classified("y", 16)
        .model();
    let batch = Batch::random(&plain(), 3, 5);
    for (actual, expected) in gradient(&dynamic, &batch).iter().zip(gradient(&plain(), &batch)) {
        assert!((actual - expected).abs() < 0.01, "{actual}, {expected}");
    }
}

#[test]
fn operators_on_quantized_values_are_refused_by_name() {
    let net = |operator: &str, inputs: &[&str]| {
        Net::of(&ROW, DType::F32)
            .probed(&ROW)
            .stored("scale", &tensor(&[], DType::F32, vec![0.01]))
            .stored("other", &tensor(&[], DType::F32, vec![0.02]))
            .stored("least", &tensor(&[], DType::U8, vec![0.0]))
            .op("QuantizeLinear", &["h", "scale"], "q")
            .op(operator, inputs, "y")
            .classified("y", 16)
    };
    for (operator, inputs) in [
        ("DequantizeLinear", &["q", "other"][..]),
        ("Relu", &["q"]),
        ("Max", &["least", "q"]),
    ] {
        let error = TrainingGraph::build(&net(operator, inputs).model(), 2, PLAIN).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(&format!("operator {operator} (node 'y')")),
            "{error}"
        );
    }
}
