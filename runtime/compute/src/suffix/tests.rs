//! Tests for micro-batches and for the state between steps.

use super::*;
use crate::tests::network;
use frostline_graph::build::{int, node};
use frostline_graph::onnx::data_type;
use frostline_graph::tensors::to_float;
use frostline_tensor::DType;
use frostline_training::{Dropout, Loss, Optimizer};

const ROWS: usize = 8;

fn parts() -> SuffixParts {
    let whole = network();
    let freeze = "r1";
    let momentum = Optimizer::Sgd {
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.0,
    };
    SuffixParts {
        suffix: whole.slice(Some(freeze), None).unwrap(),
        whole,
        freeze: freeze.to_owned(),
        linear: None,
        settings: StepSettings {
            accumulates: true,
            loss: Loss::CrossEntropy {
                label_smoothing: 0.0,
                class_weights: Some(vec![0.0, 1.0, 7.0, 1.0, 1.0, 1.0, 1.0]),
                mixed: false,
            },
            dropout: vec![Dropout {
                tensor: "features".to_owned(),
                ratio: 0.5,
                seed: 1,
            }],
            ..momentum.into()
        },
        outputs: 7,
        numbers: None,
        batch: ROWS,
        middles: 1,
        options: SessionOptions::default(),
        precision: Precision::Full,
        state: None,
    }
}

fn train(suffix: &mut Suffix, step: u64) -> f32 {
    train_on(suffix, step, DType::F32)
}

/// Trains on activations of this type.
fn train_on(suffix: &mut Suffix, step: u64, dtype: DType) -> f32 {
    let network = suffix.parts.whole.network().unwrap();
    let shape = network.frozen_row(&suffix.parts.freeze).unwrap().batched(ROWS);
    let values = (0..shape.elements().unwrap()).map(|index| (index * 37 % 101) as f32 / 101.0);
    let rows = Tensor::f32(shape.clone(), values.collect()).unwrap();
    let rows = to_float(&rows, dtype).unwrap();
    // Micro-batches of 4 rows contain two and three classes. Class 0 has weight 0.
    let targets = Targets::Classes(vec![0, 0, 0, 1, 2, 2, 0, 1]);
    let terms = StepTerms {
        step,
        rate: 0.1,
        ..StepTerms::measured()
    };
    let split = Split::Cut(suffix.parts.freeze.clone());
    let activations = suffix.activations(&split, rows).unwrap();
    suffix.train(&activations, targets, &terms).unwrap()
}

/// The test network, which carries `r1` in half precision as `half`.
fn with_half_cut() -> Model {
    let mut proto = network().into_proto();
    let graph = proto.graph.as_mut().unwrap();
    for input in graph.node.iter_mut().flat_map(|node| &mut node.input) {
        if input == "r1" {
            "wide".clone_into(input);
        }
    }
    let place = graph.node.iter().position(|node| node.output == ["r1"]).unwrap();
    let cast = |from: &str, to: &str, code: i32| node("Cast", &[from], &[to]).with([int("to", code.into())]);
    let casts = [
        cast("r1", "half", data_type::FLOAT16),
        cast("half", "wide", data_type::FLOAT),
    ];
    graph.node.splice(place + 1..place + 1, casts);
    Model::from_proto(proto).unwrap()
}

#[test]
fn activations_in_half_precision_train_like_others() {
    let whole = with_half_cut();
    let half = SuffixParts {
        suffix: whole.slice(Some("half"), None).unwrap(),
        whole,
        freeze: "half".to_owned(),
        ..parts()
    };
    let losses = |parts: SuffixParts, dtype| {
        let mut suffix = Suffix::open(parts, &Interrupt::new()).unwrap();
        let losses: Vec<f32> = (0..3).map(|step| train_on(&mut suffix, step, dtype)).collect();
        let rows = suffix.parts.whole.network().unwrap();
        let rows = Tensor::zeros(dtype, rows.frozen_row(&suffix.parts.freeze).unwrap().batched(2)).unwrap();
        let split = Split::Cut(suffix.parts.freeze.clone());
        let activations = suffix.activations(&split, rows).unwrap();
        let scores = suffix.predict(&activations).unwrap();
        assert_eq!(scores.as_f32().unwrap().len(), 14);
        losses
    };
    let pairs = losses(half, DType::F16)
        .into_iter()
        .zip(losses(parts(), DType::F32));
    for (half, single) in pairs {
        assert!((half - single).abs() < 0.01 * single, "{half} {single}");
    }
}

#[test]
fn a_middle_in_f16_agrees_and_refuses_values_beyond_the_range() {
    let scores = |precision, scale: f32| {
        let mut suffix = Suffix::open(SuffixParts { precision, ..parts() }, &Interrupt::new()).unwrap();
        let row = suffix.parts.whole.network().unwrap().input.shape.batched(2);
        let values = (0..row.elements().unwrap()).map(|index| scale * (index * 37 % 101) as f32 / 101.0);
        let rows = Tensor::f32(row.clone(), values.collect()).unwrap();
        let activations = suffix.activations(&Split::Input, rows)?;
        suffix.predict(&activations)
    };
    let [full, half] = [Precision::Full, Precision::F16].map(|precision| scores(precision, 1.0).unwrap());
    assert_ne!(full, half, "nothing was rounded");
    let pairs = full.as_f32().unwrap().iter().zip(half.as_f32().unwrap());
    for (full, half) in pairs {
        assert!((full - half).abs() < 0.01 * full.abs().max(1.0), "{full} {half}");
    }
    // On a CPU, ONNX Runtime removes casts between operators that it computes in f32, so large values do not
    // overflow.
    assert!(scores(Precision::Full, f32::INFINITY).is_ok());
    let error = scores(Precision::F16, f32::INFINITY).unwrap_err();
    assert!(
        matches!(&error, ComputeError::F16Range { freeze } if freeze == "r1"),
        "{error}"
    );
}

#[test]
fn micro_batches_learn_what_their_batch_would() {
    let losses = |micro_batch| {
        let mut suffix = Suffix::open(parts(), &Interrupt::new()).unwrap();
        assert_eq!(suffix.micro_batch, ROWS);
        suffix.micro_batch = micro_batch;
        (0..3).map(|step| train(&mut suffix, step)).collect::<Vec<f32>>()
    };
    let whole = losses(ROWS);
    assert!(whole[2] != whole[0], "{whole:?}");
    for divided in [1, 3, 4].map(losses) {
        let apart = whole.iter().zip(&divided).map(|(one, other)| (one - other).abs());
        assert!(
            apart.fold(0.0, f32::max) < 1e-5,
            "{divided:?} instead of {whole:?}"
        );
    }
}

#[test]
fn pending_slots_are_omitted_after_an_update() {
    let mut suffix = Suffix::open(parts(), &Interrupt::new()).unwrap();
    train(&mut suffix, 0);
    let state = suffix.state().unwrap();
    assert!(
        state
            .slots
            .iter()
            .all(|(input, _)| !input.ends_with("/gathered") && input != StateSlot::COUNT)
    );
    let resumed = SuffixParts {
        state: Some(Arc::new(state.clone())),
        ..parts()
    };
    let mut resumed = Suffix::open(resumed, &Interrupt::new()).unwrap();
    assert_eq!(resumed.state().unwrap(), state);
    assert_eq!(train(&mut resumed, 1), train(&mut suffix, 1));
}
