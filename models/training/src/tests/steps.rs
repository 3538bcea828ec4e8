//! Tests of complete steps.

use super::harness::{Batch, Net, PLAIN, Trained, random, values, weights};
use crate::Optimizer;
use frostline_graph::Model;
use frostline_graph::build::{ints, node};
use frostline_tensor::{DType, Tensor};

fn net(dtype: DType) -> Model {
    Net::of(&[2, 6, 6], dtype)
        .weight("w", &[4, 2, 3, 3])
        .weight("b", &[4])
        .node(
            node("Conv", &["x", "w", "b"], &["c"])
                .with([ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])]),
        )
        .op("Relu", &["c"], "r")
        .op("GlobalAveragePool", &["r"], "p")
        .classified("p", 4)
        .model()
}

#[test]
fn a_short_batch_is_the_mean_over_its_own_rows() {
    let model = net(DType::F64);
    let batch = Batch::random(&model, 3, 5);
    let mut short = Trained::new(&model, 3, PLAIN);
    let mut single = Trained::new(&model, 1, PLAIN);
    let state = short.initial();
    assert_eq!(short.graph.state, single.graph.state);
    let together = short.gradients(&state, &batch);
    let mut apart: Vec<Vec<f64>> = together
        .iter()
        .map(|gradient| vec![0.0; gradient.len()])
        .collect();
    for row in 0..3 {
        for (sum, part) in apart
            .iter_mut()
            .zip(single.gradients(&state, &batch.rows(row, row + 1)))
        {
            sum.iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part / 3.0);
        }
    }
    assert_eq!(single.gradients(&state, &batch.rows(0, 1)).len(), together.len());
    for (together, apart) in together.iter().flatten().zip(apart.iter().flatten()) {
        assert!((together - apart).abs() < 1e-12, "{together} instead of {apart}");
    }
}

#[test]
fn logits_and_loss_are_those_before_the_update() {
    let model = net(DType::F32);
    let batch = Batch::random(&model, 4, 3);
    let mut trained = Trained::new(&model, 4, PLAIN);
    let state = trained.initial();
    let still = trained.step(&state, &batch, 0.0);
    let moved = trained.step(&state, &batch, 0.5);
    assert_eq!(still.logits, moved.logits);
    assert_eq!(still.state, state);
    assert_ne!(moved.state, state);
    let logits = values(&still.logits);
    let labels = batch.labels.as_i64().unwrap();
    let losses = logits.chunks(3).zip(labels).map(|(row, label)| {
        let total: f64 = row.iter().map(|logit| logit.exp()).sum();
        total.ln() - row[usize::try_from(*label).unwrap()]
    });
    let mean = losses.sum::<f64>() / 4.0;
    assert!(
        (still.loss - mean).abs() < 1e-6,
        "{} instead of {mean}",
        still.loss
    );
}

#[test]
fn huge_logits_give_a_finite_loss_and_gradient() {
    let big = super::harness::tensor(&[2, 3], DType::F32, vec![1e4, -1e4, 3e3, -2e4, 1e4, 0.0]);
    let model = Net::of(&[2], DType::F32)
        .stored("w", &big)
        .op("MatMul", &["x", "w"], "logits")
        .model();
    let batch = Batch::random(&model, 2, 1);
    let mut trained = Trained::new(&model, 2, PLAIN);
    let state = trained.initial();
    let step = trained.step(&state, &batch, 0.1);
    assert!(step.loss.is_finite());
    assert!(step.state.iter().flat_map(values).all(f64::is_finite));
}

#[test]
fn weights_come_back_in_the_layout_of_the_suffix() {
    let model = net(DType::F32);
    let trained = Trained::new(
        &model,
        1,
        Optimizer::Sgd {
            momentum: 0.9,
            nesterov: false,
            weight_decay: 1e-4,
        },
    );
    assert_eq!(weights(&trained.graph.state), ["w", "b", "head"]);
    for slot in &trained.graph.state {
        if let Some(name) = &slot.parameter {
            assert_eq!(
                slot.to_weight(&slot.initial).unwrap(),
                model.weight(name).unwrap()
            );
        }
        assert!(slot.to_weight(&Tensor::f32([1], vec![0.0]).unwrap()).is_err());
    }
}

#[test]
fn the_same_suffix_gives_the_same_bytes() {
    use prost::Message;
    let bytes = || {
        Trained::new(&net(DType::F32), 2, PLAIN)
            .graph
            .model
            .into_proto()
            .encode_to_vec()
    };
    assert_eq!(bytes(), bytes());
}

#[test]
fn a_separable_task_is_learnt() {
    let model = net(DType::F32);
    let optimizers = [
        (
            Optimizer::Sgd {
                momentum: 0.9,
                nesterov: false,
                weight_decay: 1e-4,
            },
            0.1,
        ),
        (
            Optimizer::AdamW {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.01,
            },
            0.03,
        ),
    ];
    // The class is the index of the pattern added to the noise.
    let patterns = random(&[3, 72], DType::F32, 11);
    let noise = random(&[12, 72], DType::F32, 12);
    let mix = |row: usize| {
        let pattern = patterns.slice_rows(row % 3, row % 3 + 1).unwrap();
        let noise = noise.slice_rows(row, row + 1).unwrap();
        values(&pattern)
            .into_iter()
            .zip(values(&noise))
            .map(|(p, n)| (2.0 * p + 0.2 * n) as f32)
            .collect::<Vec<_>>()
    };
    let batch = Batch {
        activations: Tensor::f32([12, 2, 6, 6], (0..12).flat_map(mix).collect()).unwrap(),
        labels: Tensor::i64([12], (0..12).map(|row| row % 3).collect()).unwrap(),
    };
    for (optimizer, rate) in optimizers {
        let mut trained = Trained::new(&model, 12, optimizer);
        let mut state = trained.initial();
        let mut losses = Vec::new();
        for _ in 0..60 {
            let step = trained.step(&state, &batch, rate);
            losses.push(step.loss);
            state = step.state;
        }
        assert!(
            losses[59] < 0.1 * losses[0],
            "{optimizer:?}: {} -> {}",
            losses[0],
            losses[59]
        );
    }
}
