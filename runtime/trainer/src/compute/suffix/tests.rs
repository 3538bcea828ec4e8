//! Tests for micro-batches and for the state between steps.

use super::*;
use crate::tests::network;
use frostline_training::{Dropout, Loss, Optimizer};

const ROWS: usize = 8;

fn parts() -> SuffixParts {
    let (whole, freeze) = (network(), "r1");
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
    let network = suffix.whole.network().unwrap();
    let shape = network.frozen_row(&suffix.freeze).unwrap().batched(ROWS);
    let values = (0..shape.elements().unwrap()).map(|index| (index * 37 % 101) as f32 / 101.0);
    let rows = BatchRows::plain(Tensor::f32(shape.clone(), values.collect()).unwrap());
    // Micro-batches of 4 rows contain two and three classes. Class 0 has weight 0.
    let targets = Targets::Classes(vec![0, 0, 0, 1, 2, 2, 0, 1]);
    let terms = StepTerms {
        step,
        rate: 0.1,
        ..StepTerms::measured()
    };
    let split = Split::Cut(suffix.freeze.clone());
    suffix.train(&split, rows, targets, &terms).unwrap()
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
