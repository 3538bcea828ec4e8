//! Dropout from the settings.

use super::harness::{Batch, Net, PLAIN, Trained, random};
use crate::{Dropout, StepSettings, TrainingGraph};
use frostline_tensor::{DType, Tensor};

fn dropping(tensor: &str, ratio: f64) -> StepSettings {
    let dropout = Dropout {
        tensor: tensor.into(),
        ratio,
        seed: 3,
    };
    StepSettings {
        dropout: vec![dropout],
        ..StepSettings::from(PLAIN)
    }
}

fn net() -> Net {
    Net::new(&[400])
        .stored("probe", &random(&[400], DType::F64, 1))
        .op("Mul", &["x", "probe"], "h")
        .classified("h", 400)
}

#[test]
fn dropped_elements_get_no_gradient_and_masks_differ_per_step() {
    let model = net().model();
    let batch = Batch::random(&model, 1, 1);
    let mut trained = Trained::new(&model, 1, dropping("h", 0.25));
    let state = trained.initial();
    let mut kept = || -> Vec<bool> {
        let gradients = trained.gradients(&state, &batch);
        // The gradients of the probe and the head are zero for the same features.
        let probe: Vec<bool> = gradients[0].iter().map(|slope| *slope != 0.0).collect();
        let head: Vec<bool> = gradients[1].chunks(3).map(|row| row[0] != 0.0).collect();
        assert_eq!(probe, head);
        probe
    };
    let first = kept();
    let second = kept();
    assert_ne!(first, second);
    for kept in [first, second] {
        let share = kept.iter().filter(|kept| **kept).count() as f64 / 400.0;
        assert!((0.65..0.85).contains(&share), "{share} kept");
    }
}

#[test]
fn remaining_elements_are_scaled() {
    let model = net().model();
    let batch = Batch::random(&model, 1, 1);
    let plain = Trained::new(&model, 1, PLAIN).first_gradients(&batch);
    let dropped = Trained::new(&model, 1, dropping("x", 0.5)).first_gradients(&batch);
    assert_eq!(plain.len(), dropped.len());
    // The gradient of the head is the activation times the gradient of the logits, which is the same for all
    // rows.
    let ratio = |row: usize| dropped[1][row * 3] / plain[1][row * 3];
    let ratios: Vec<f64> = (0..400).map(ratio).filter(|ratio| *ratio != 0.0).collect();
    assert!(ratios.iter().all(|ratio| (ratio - ratios[0]).abs() < 1e-9));
    assert!((100..300).contains(&ratios.len()));
}

#[test]
fn the_same_seed_drops_the_same_in_another_session() {
    let model = net().model();
    let batch = Batch::random(&model, 2, 1);
    let loss = |settings: &StepSettings| {
        let mut trained = Trained::new(&model, 2, settings);
        let state = trained.initial();
        (0..3)
            .map(|_| trained.step(&state, &batch, 0.0).loss)
            .collect::<Vec<_>>()
    };
    assert_eq!(loss(&dropping("h", 0.5)), loss(&dropping("h", 0.5)));
    assert_ne!(loss(&dropping("h", 0.5)), loss(&StepSettings::from(PLAIN)));
    assert_eq!(loss(&dropping("h", 0.0)), loss(&StepSettings::from(PLAIN)));
}

#[test]
fn a_mask_is_of_its_step_and_its_seed_alone() {
    let model = net().model();
    let at = |tensor: &str, seed| Dropout {
        tensor: tensor.into(),
        ratio: 0.5,
        seed,
    };
    let settings = StepSettings {
        dropout: vec![at("x", 3), at("h", 4)],
        accumulates: true,
        ..StepSettings::from(PLAIN)
    };
    let draw = |rows: usize| {
        let masks = TrainingGraph::build(&model, rows, &settings).unwrap().masks;
        let steps = 0..4;
        let drawn = steps.flat_map(|step| {
            masks
                .iter()
                .map(move |mask| mask.draw(step, 0).unwrap())
                .collect::<Vec<_>>()
        });
        drawn.collect::<Vec<_>>()
    };
    let masks = draw(2);
    assert_eq!(masks.len(), 8);
    for (place, mask) in masks.iter().enumerate() {
        assert!(
            masks[..place].iter().all(|other| other != mask),
            "mask {place} came before"
        );
    }
    assert_eq!(draw(2), masks);
    // Updates do not read masks.
    let update = TrainingGraph::update(&model, &settings).unwrap();
    assert!(update.model.inputs().all(|input| !input.name.starts_with("mask")));
}

#[test]
fn micro_batches_drop_together_what_their_batch_would() {
    let model = net().model();
    let settings = dropping("h", 0.5);
    let draw = |rows: usize, before: usize| {
        let graph = TrainingGraph::build(&model, rows, &settings).unwrap();
        graph.masks[0].draw(5, before).unwrap()
    };
    let parts = [draw(4, 0), draw(4, 4), draw(1, 8)];
    assert_eq!(Tensor::concat_rows(&parts).unwrap(), draw(9, 0));
}

#[test]
fn dropout_nowhere_or_of_all_is_refused() {
    let model = net().model();
    for (settings, reason) in [
        (dropping("nowhere", 0.5), "no tensor 'nowhere'"),
        (dropping("h", 1.0), "below 1"),
    ] {
        let error = TrainingGraph::build(&model, 2, settings).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
