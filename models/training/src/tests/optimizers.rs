//! Updates of optimizers, compared with the formulas of `torch.optim` step by step.

use super::harness::{Batch, Net, PLAIN, Trained, values};
use crate::Optimizer;
use frostline_graph::Model;
use frostline_graph::build::{ints, node};
use frostline_tensor::Tensor;

fn net() -> Model {
    Net::new(&[2, 4, 4])
        .weight("w", &[3, 2, 3, 3])
        .weight("b", &[3])
        .node(node("Conv", &["x", "w", "b"], &["c"]).with([ints("pads", &[1, 1, 1, 1])]))
        .op("GlobalAveragePool", &["c"], "p")
        .classified("p", 3)
        .model()
}

/// Performs five steps. `reference` receives step number, learning rate, weight index, weight before the step
/// and gradient, and returns the expected weight after the step.
fn compare(optimizer: Optimizer, mut reference: impl FnMut(usize, f64, usize, &[f64], &[f64]) -> Vec<f64>) {
    let model = net();
    let mut plain = Trained::new(&model, 4, PLAIN);
    let mut trained = Trained::new(&model, 4, optimizer);
    let mut state = trained.initial();
    let slots: Vec<usize> = (0..state.len())
        .filter(|slot| trained.graph.state[*slot].parameter.is_some())
        .collect();
    for step in 1..=5 {
        let rate = 0.1 / step as f64;
        let batch = Batch::random(&model, 4, step as u64);
        let weights: Vec<Tensor> = slots.iter().map(|slot| state[*slot].clone()).collect();
        let gradients = plain.gradients(&weights, &batch);
        state = trained.step(&state, &batch, rate).state;
        for (index, slot) in slots.iter().enumerate() {
            let expected = reference(step, rate, index, &values(&weights[index]), &gradients[index]);
            let actual = values(&state[*slot]);
            assert_eq!(actual.len(), expected.len());
            for (expected, actual) in expected.iter().zip(actual) {
                let error = (expected - actual).abs();
                // Gemm reads momentum and decay from attributes, which are `f32`.
                assert!(
                    error < 1e-7,
                    "step {step}, weight {index}: {actual} instead of {expected}"
                );
            }
        }
    }
}

#[test]
fn sgd_with_either_momentum_and_weight_decay() {
    let settings = [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)];
    let nesterovs = [(0.9, 0.0, true), (0.9, 0.1, true)];
    let plain = settings.map(|(momentum, decay)| (momentum, decay, false));
    for (momentum, decay, nesterov) in plain.into_iter().chain(nesterovs) {
        let mut velocities = vec![Vec::new(); 3];
        compare(
            Optimizer::Sgd {
                momentum,
                nesterov,
                weight_decay: decay,
            },
            |step, rate, index, weights, gradients| {
                let velocity = &mut velocities[index];
                if step == 1 {
                    *velocity = vec![0.0; weights.len()];
                }
                let updated =
                    weights
                        .iter()
                        .zip(gradients)
                        .zip(velocity)
                        .map(|((weight, gradient), velocity)| {
                            let descent = gradient + decay * weight;
                            *velocity = momentum * *velocity + descent;
                            let ahead = descent + momentum * *velocity;
                            weight - rate * if nesterov { ahead } else { *velocity }
                        });
                updated.collect()
            },
        );
    }
}

#[test]
fn adamw_with_bias_correction() {
    for decay in [0.0, 0.2] {
        let beta1 = 0.9;
        let beta2 = 0.999;
        let epsilon = 1e-8;
        let mut moments = vec![Vec::new(); 3];
        let optimizer = Optimizer::AdamW {
            beta1,
            beta2,
            epsilon,
            weight_decay: decay,
        };
        compare(optimizer, |step, rate, index, weights, gradients| {
            let moments = &mut moments[index];
            if step == 1 {
                *moments = vec![(0.0, 0.0); weights.len()];
            }
            let bias = |beta: f64| 1.0 - beta.powi(i32::try_from(step).unwrap());
            let updated =
                weights
                    .iter()
                    .zip(gradients)
                    .zip(moments)
                    .map(|((weight, gradient), (first, second))| {
                        *first = beta1 * *first + (1.0 - beta1) * gradient;
                        *second = beta2 * *second + (1.0 - beta2) * gradient * gradient;
                        let denominator = second.sqrt() / bias(beta2).sqrt() + epsilon;
                        weight * (1.0 - rate * decay) - rate / bias(beta1) * *first / denominator
                    });
            updated.collect()
        });
    }
}

#[test]
fn the_step_counter_is_state() {
    let optimizer = Optimizer::AdamW {
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
    };
    let model = net();
    let mut trained = Trained::new(&model, 2, optimizer);
    let slot = trained
        .graph
        .state
        .iter()
        .position(|slot| slot.input == "step")
        .unwrap();
    let mut state = trained.initial();
    for _ in 0..3 {
        state = trained.step(&state, &Batch::random(&model, 2, 1), 0.01).state;
    }
    assert_eq!(state[slot].as_i64(), Some(&[3][..]));
}

#[test]
fn settings_out_of_range_are_refused() {
    let bad = [
        Optimizer::Sgd {
            momentum: 1.0,
            nesterov: false,
            weight_decay: 0.0,
        },
        Optimizer::Sgd {
            momentum: 0.9,
            nesterov: false,
            weight_decay: -1.0,
        },
        Optimizer::AdamW {
            beta1: f64::NAN,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        },
        Optimizer::AdamW {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 0.0,
            weight_decay: 0.0,
        },
    ];
    for optimizer in bad {
        assert!(optimizer.check().is_err(), "{optimizer:?}");
    }
}
