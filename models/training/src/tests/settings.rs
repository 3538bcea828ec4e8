//! Settings other than the optimizer: clipping, several batches per update, learning rate factors and
//! averages.

use super::harness::{Batch, Net, PLAIN, Trained, random, values};
use crate::{Loss, Optimizer, StepSettings, TrainingGraph};
use frostline_graph::Model;
use frostline_graph::build::{ints, node};
use frostline_tensor::{DType, Tensor};

const MOMENTUM: Optimizer = Optimizer::Sgd {
    momentum: 0.9,
    nesterov: true,
    weight_decay: 0.01,
};

const ADAMW: Optimizer = Optimizer::AdamW {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.1,
};

fn net() -> Model {
    Net::new(&[2, 4, 4])
        .weight("w", &[3, 2, 3, 3])
        .weight("b", &[3])
        .node(node("Conv", &["x", "w", "b"], &["c"]).with([ints("pads", &[1, 1, 1, 1])]))
        .op("GlobalAveragePool", &["c"], "p")
        .classified("p", 3)
        .model()
}

fn near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.iter().zip(expected) {
        assert!((actual - expected).abs() < 1e-7, "{actual} instead of {expected}");
    }
}

fn slot(graph: &TrainingGraph, input: &str) -> usize {
    graph.state.iter().position(|slot| slot.input == input).unwrap()
}

#[test]
fn clipped_gradients_have_the_norm_and_small_ones_stay() {
    let model = net();
    let batch = Batch::random(&model, 4, 1);
    let mut plain = Trained::new(&model, 4, PLAIN);
    let state = plain.initial();
    let gradients = plain.gradients(&state, &batch);
    let norm = gradients
        .iter()
        .flatten()
        .map(|part| part * part)
        .sum::<f64>()
        .sqrt();
    for (most, factor) in [(norm / 3.0, (norm / 3.0) / (norm + 1e-6)), (norm * 2.0, 1.0)] {
        let settings = StepSettings {
            clip_norm: Some(most),
            ..PLAIN.into()
        };
        let clipped = Trained::new(&model, 4, &settings).gradients(&state, &batch);
        for (clipped, gradient) in clipped.iter().zip(&gradients) {
            let expected: Vec<f64> = gradient.iter().map(|part| part * factor).collect();
            near(clipped, &expected);
        }
    }
}

#[test]
fn several_batches_make_the_update_of_one_large_one() {
    let model = net();
    for optimizer in [PLAIN, MOMENTUM, ADAMW] {
        for clip_norm in [None, Some(0.05)] {
            let whole_settings = StepSettings {
                clip_norm,
                averages: true,
                ..optimizer.into()
            };
            let settings = StepSettings {
                accumulates: true,
                ..whole_settings.clone()
            };
            let mut whole = Trained::new(&model, 6, &whole_settings);
            let mut gathers = [4, 2].map(|rows| Trained::new(&model, rows, &settings));
            let mut updates = Trained::open(TrainingGraph::update(&model, &settings).unwrap());
            assert_eq!(gathers[0].graph.state, updates.graph.state);
            let mut one = whole.initial();
            let mut many = updates.initial();
            for step in 0..3 {
                let batch = Batch::random(&model, 6, step);
                one = whole.step_with(&one, &batch, 0.1, 0.9).state;
                for (gathers, rows) in gathers.iter_mut().zip([[0, 4], [4, 6]]) {
                    let gathered = gathers.step(&many, &batch.rows(rows[0], rows[1]), 0.1).state;
                    for (index, slot) in updates.graph.state.iter().enumerate() {
                        let moved = gathered[index] != many[index];
                        let moves = slot.input == "count" || slot.input.ends_with("/gathered");
                        assert_eq!(moved, moves, "{}", slot.input);
                    }
                    many = gathered;
                }
                many = updates.step_with(&many, &batch, 0.1, 0.9).state;
            }
            for (index, held) in whole.graph.state.iter().enumerate() {
                if held.input == "step" {
                    assert_eq!(one[index], many[slot(&updates.graph, "step")]);
                    continue;
                }
                near(
                    &values(&many[slot(&updates.graph, &held.input)]),
                    &values(&one[index]),
                );
            }
        }
    }
}

/// Returns the state after a single update from consecutive parts of `batch` with `sizes` rows.
fn updated(model: &Model, settings: &StepSettings, batch: &Batch, sizes: &[usize]) -> Vec<Tensor> {
    let settings = StepSettings {
        accumulates: true,
        ..settings.clone()
    };
    let mut update = Trained::open(TrainingGraph::update(model, &settings).unwrap());
    let mut state = update.initial();
    let mut first = 0;
    for rows in sizes {
        let part = batch.rows(first, first + rows);
        state = Trained::new(model, *rows, &settings)
            .step(&state, &part, 0.1)
            .state;
        first += rows;
    }
    update.step(&state, batch, 0.1).state
}

#[test]
fn three_batches_of_seven_equal_one_of_twenty_one_for_all_losses() {
    let model = net();
    let of_classes = Batch::random(&model, 21, 4);
    let of_values = Batch {
        labels: random(&[21, 3], DType::F64, 5),
        ..of_classes.clone()
    };
    // The batches of seven contain the classes in different proportions.
    let weighted = Loss::CrossEntropy {
        label_smoothing: 0.1,
        class_weights: Some(vec![0.1, 1.0, 7.0]),
        mixed: false,
    };
    let of_labels = Loss::BinaryCrossEntropy {
        positive_weights: Some(vec![0.5, 1.0, 3.0]),
    };
    for (loss, batch) in [
        (weighted, &of_classes),
        (of_labels, &of_values),
        (Loss::MeanSquared, &of_values),
    ] {
        let settings = StepSettings { loss, ..PLAIN.into() };
        let mut whole = Trained::new(&model, 21, &settings);
        let state = whole.initial();
        let expected = whole.step(&state, batch, 0.1).state;
        for sizes in [&[7, 7, 7][..], &[1, 13, 7]] {
            let actual = updated(&model, &settings, batch, sizes);
            for (slot, expected) in expected.iter().enumerate() {
                near(&values(&actual[slot]), &values(expected));
            }
        }
    }
}

#[test]
fn weights_have_the_learning_rates_they_are_given() {
    let model = net();
    let batch = Batch::random(&model, 4, 1);
    for optimizer in [MOMENTUM, ADAMW] {
        let settings = StepSettings {
            rate_factors: [("head".to_owned(), 0.25), ("b".to_owned(), 0.0)].into(),
            ..optimizer.into()
        };
        let mut own = Trained::new(&model, 4, &settings);
        let state = own.initial();
        let stepped = own.step(&state, &batch, 0.1).state;
        for (name, rate) in [("w", 0.1), ("head", 0.025), ("b", 0.0)] {
            let expected = Trained::new(&model, 4, optimizer)
                .step(&state, &batch, rate)
                .state;
            let weight = slot(&own.graph, &format!("{name}/weight"));
            near(&values(&stepped[weight]), &values(&expected[weight]));
        }
    }
}

#[test]
fn averages_follow_the_weights() {
    let model = net();
    let settings = StepSettings {
        averages: true,
        ..MOMENTUM.into()
    };
    let mut trained = Trained::new(&model, 4, &settings);
    let mut state = trained.initial();
    let weight = slot(&trained.graph, "w/weight");
    let average = slot(&trained.graph, "w/average");
    assert_eq!(state[weight], state[average]);
    assert_eq!(trained.graph.state[average].average_of.as_deref(), Some("w"));
    let mut expected = values(&state[weight]);
    for (step, decay) in [0.0, 0.5, 0.9].into_iter().enumerate() {
        let batch = Batch::random(&model, 4, step as u64);
        state = trained.step_with(&state, &batch, 0.1, decay).state;
        for (expected, weight) in expected.iter_mut().zip(values(&state[weight])) {
            *expected = decay * *expected + (1.0 - decay) * weight;
        }
        near(&values(&state[average]), &expected);
    }
    let back: Tensor = trained.graph.state[average].to_weight(&state[average]).unwrap();
    assert_eq!(back.shape(), model.weight("w").unwrap().shape());
}

#[test]
fn weights_that_join_later_count_their_own_steps() {
    let model = net();
    let batch = Batch::random(&model, 4, 1);
    let mut fresh = Trained::new(&model, 4, ADAMW);
    let first = fresh.step(&fresh.initial(), &batch, 0.1).state;
    let settings = StepSettings {
        step_counters: [("w".to_owned(), 1)].into(),
        ..ADAMW.into()
    };
    let mut joined = Trained::new(&model, 4, settings);
    let mut state = joined.initial();
    let counters = ["step", "1/step"].map(|input| slot(&joined.graph, input));
    state[counters[0]] = Tensor::i64([], vec![40]).unwrap();
    let state = joined.step(&state, &batch, 0.1).state;
    let counted = counters.map(|counter| state[counter].as_i64().unwrap()[0]);
    assert_eq!(counted, [41, 1]);
    let weight = |graph: &TrainingGraph, state: &[Tensor], name: &str| {
        values(&state[slot(graph, &format!("{name}/weight"))])
    };
    let both = |name: &str| {
        [
            weight(&fresh.graph, &first, name),
            weight(&joined.graph, &state, name),
        ]
    };
    let [expected, actual] = both("w");
    near(&actual, &expected);
    let [fresh, old] = both("b");
    assert!(
        fresh
            .iter()
            .zip(old)
            .all(|(fresh, old)| (fresh - old).abs() > 1e-3)
    );
}
