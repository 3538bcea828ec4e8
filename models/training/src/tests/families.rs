//! Fifty steps of small networks of each family, exported by both PyTorch exporters, compared with losses
//! recorded in PyTorch (`families/record.py`).

use super::harness::{Batch, Trained};
use crate::{BatchNorm, Optimizer, StepSettings};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use std::path::PathBuf;

const ROWS: usize = 8;
const BATCHES: usize = 4;
const CLASSES: i64 = 3;
const ROW: [usize; 3] = [3, 12, 12];

/// Maximum relative error of a loss.
const WITHIN: f64 = 1e-4;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/families")
}

/// Returns the batches of `record.py`.
fn batches() -> Vec<Batch> {
    let size: usize = ROW.iter().product();
    let mut state = 1_i64;
    let mut draw = || {
        state = (state * 1_103_515_245 + 12_345) & 0x7fff_ffff;
        state
    };
    let mut batch = || {
        let pixels = (0..ROWS * size)
            .map(|_| (draw() as f64 / f64::from(1 << 30) - 1.0) as f32)
            .collect();
        let labels = (0..ROWS).map(|_| (draw() >> 16) % CLASSES).collect();
        Batch {
            activations: Tensor::f32([ROWS, ROW[0], ROW[1], ROW[2]], pixels).unwrap(),
            labels: Tensor::i64([ROWS], labels).unwrap(),
        }
    };
    (0..BATCHES).map(|_| batch()).collect()
}

/// Returns the settings and the learning rate of `record.py`.
fn recipe(optimizer: &str, norms: &str) -> (StepSettings, f64) {
    let (optimizer, rate) = match optimizer {
        "sgd" => (
            Optimizer::Sgd {
                momentum: 0.9,
                nesterov: false,
                weight_decay: 1e-3,
            },
            0.02,
        ),
        _ => (
            Optimizer::AdamW {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.01,
            },
            0.01,
        ),
    };
    let batch_norm = match norms {
        "frozen" => BatchNorm::Frozen,
        "updated" => BatchNorm::Updated,
        _ => BatchNorm::Stored,
    };
    let settings = StepSettings {
        batch_norm,
        ..StepSettings::from(optimizer)
    };
    (settings, rate)
}

/// Trains `network` from all exports and compares the losses.
fn check(network: &str) {
    let recorded = std::fs::read_to_string(folder().join("losses.txt")).unwrap();
    let runs = recorded
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let runs: Vec<_> = runs.filter(|run| run[0] == network).collect();
    assert!(!runs.is_empty(), "{network} is not recorded");
    for exporter in ["dynamo", "legacy"] {
        let path = folder().join(format!("{network}.{exporter}.onnx"));
        if !path.exists() {
            continue;
        }
        let model = Model::read(path).unwrap();
        for run in &runs {
            let (settings, rate) = recipe(run[1], run[2]);
            let expected: Vec<f64> = run[3..].iter().map(|loss| loss.parse().unwrap()).collect();
            assert_eq!(expected.len(), 50, "{network}, {exporter}");
            let (step, error) = furthest(&model, &settings, rate, &expected);
            println!(
                "maximum error in 50 steps of {network} {exporter}, {} {}: {error:.1e}",
                run[1], run[2]
            );
            assert!(
                error < WITHIN,
                "{network} {exporter}, {} {}: error {error:e} in step {step}",
                run[1],
                run[2]
            );
        }
    }
}

/// Returns the step with the largest relative error and this error.
fn furthest(model: &Model, settings: &StepSettings, rate: f64, expected: &[f64]) -> (usize, f64) {
    let batches = batches();
    let mut trained = Trained::new(model, ROWS, settings);
    let mut state = trained.initial();
    let mut worst = (0, 0.0);
    for (turn, expected) in expected.iter().enumerate() {
        let step = trained.step(&state, &batches[turn % BATCHES], rate);
        state = step.state;
        let error = (step.loss - expected).abs() / expected.abs();
        if error > worst.1 || error.is_nan() {
            worst = (turn, if error.is_nan() { f64::INFINITY } else { error });
        }
    }
    worst
}

#[test]
fn mobilenets() {
    check("mobilenet_v2");
    check("mobilenet_v3");
}

#[test]
fn efficientnet() {
    check("efficientnet");
}

#[test]
fn regnet() {
    check("regnet");
}

#[test]
fn shufflenet() {
    check("shufflenet");
}

#[test]
fn alexnet_with_local_response_normalization() {
    check("alexnet");
}

#[test]
fn activations() {
    check("activations");
}

#[test]
fn padded_and_resampled() {
    check("resampled");
}

#[test]
fn group_and_instance_norms_with_trained_slopes() {
    check("group_norm");
}

#[test]
fn every_mode_of_batch_norm() {
    check("batch_norm");
}
