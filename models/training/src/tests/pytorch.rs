//! Fifty steps of small networks, exported by both PyTorch exporters, compared with losses recorded in
//! PyTorch (`recorded/record.py`). All exports must pass admission.

use super::harness::{Batch, Trained, tensor};
use crate::Optimizer;
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::{DType, Tensor};
use std::path::Path;

const RATE: f64 = 0.05;
const ROWS: usize = 4;
const STEPS: usize = 50;

/// Returns the batch of `record.py`.
fn batch(model: &Model) -> Batch {
    let shapes = model.shapes(ROWS).unwrap();
    let dims = shapes.dims(&model.inputs().next().unwrap().name).unwrap();
    let numbers = (0..dims.iter().product::<usize>()).map(|place| (place * 37 % 101) as f64 / 50.0 - 1.0);
    Batch {
        activations: tensor(dims, DType::F32, numbers.collect()),
        labels: Tensor::i64([ROWS], (0..ROWS as i64).map(|row| row % 3).collect()).unwrap(),
    }
}

const EXPORTS: &[&str] = &[
    "legacy17", "dynamo18", "dynamo20", "dynamo23", "dynamo24", "dynamo25",
];

fn compare(network: &str, exports: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/recorded");
    let losses = std::fs::read_to_string(folder.join(format!("{network}.losses"))).unwrap();
    assert_eq!(losses.lines().count(), STEPS, "{network}");
    for export in exports {
        let bytes = std::fs::read(folder.join(format!("{network}.{export}.onnx"))).unwrap();
        let model = Model::admit(bytes.into(), &ModelLimits::default())
            .unwrap_or_else(|error| panic!("{network} {export}: {error}"));
        let optimizer = Optimizer::Sgd {
            momentum: 0.9,
            weight_decay: 0.0,
            nesterov: false,
        };
        let mut trained = Trained::new(&model, ROWS, optimizer);
        let mut state = trained.initial();
        let batch = batch(&model);
        let mut furthest = 0.0_f64;
        for (step, loss) in losses.lines().enumerate() {
            let expected: f64 = loss.parse().unwrap();
            let done = trained.step(&state, &batch, RATE);
            let error = (done.loss - expected).abs();
            assert!(
                error < 1e-4,
                "{network} {export}, step {step}: {} instead of {expected}",
                done.loss
            );
            (state, furthest) = (done.state, furthest.max(error));
        }
        println!("maximum error in 50 steps of {network} {export}: {furthest:.1e}");
    }
}

#[test]
fn an_encoder_of_vit() {
    compare("encoder", EXPORTS);
}

#[test]
fn attention_with_layer_scale() {
    compare("scaled", EXPORTS);
}

#[test]
fn shifted_windows() {
    compare("windows", &EXPORTS[..1]);
    compare("folded", &EXPORTS[1..]);
}

#[test]
fn channels_last() {
    compare("channels_last", EXPORTS);
}

#[test]
fn an_mlp_on_features() {
    compare("features", EXPORTS);
}

#[test]
fn attention_that_looks_back_with_shared_keys() {
    compare("looking_back", &EXPORTS[1..]);
}

#[test]
fn images_made_smaller() {
    compare("smoothed", &EXPORTS[1..]);
}
