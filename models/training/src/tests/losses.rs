//! Losses and gradients, compared with values from PyTorch (`losses.py`).

use super::harness::{Batch, Net, Trained, tensor, values};
use crate::{Loss, Optimizer, StepSettings, TrainingError, TrainingGraph};
use frostline_graph::Model;
use frostline_tensor::{DType, Tensor};

const LOGITS: [f64; 12] = [2.0, -1.0, 0.5, 30.0, -40.0, 3.0, 0.0, 0.1, -0.2, -1.5, 1.5, 0.25];
const CLASSES: [i64; 4] = [0, 1, 2, 1];
const PROBABILITIES: [f64; 12] = [0.7, 0.3, 0.0, 0.0, 0.0, 1.0, 0.2, 0.2, 0.6, 0.5, 0.5, 0.0];
const YES: [f64; 12] = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0];
const WEIGHTS: [f64; 3] = [1.0, 2.0, 0.5];

/// Network with the logits as a weight, so that a plain step with the learning rate 1 subtracts the gradient
/// of the loss.
fn model() -> Model {
    Net::new(&[3])
        .stored("logit", &tensor(&[4, 3], DType::F64, LOGITS.to_vec()))
        .op("Mul", &["x", "logit"], "logits")
        .model()
}

/// Returns loss and gradient.
fn of(loss: Loss) -> (f64, Vec<f64>) {
    let labels = match &loss {
        Loss::CrossEntropy { mixed: false, .. } => Tensor::i64([4], CLASSES.to_vec()).unwrap(),
        Loss::CrossEntropy { .. } => tensor(&[4, 3], DType::F64, PROBABILITIES.to_vec()),
        Loss::BinaryCrossEntropy { .. } => tensor(&[4, 3], DType::F64, YES.to_vec()),
        Loss::MeanSquared => tensor(&[4, 3], DType::F64, PROBABILITIES.to_vec()),
    };
    let settings = StepSettings {
        loss,
        ..super::harness::PLAIN.into()
    };
    let mut trained = Trained::new(&model(), 4, &settings);
    let batch = Batch {
        activations: tensor(&[4, 3], DType::F64, vec![1.0; 12]),
        labels,
    };
    let state = trained.initial();
    let step = trained.step(&state, &batch, 1.0);
    let next = values(&step.state[0]);
    let gradient = LOGITS.iter().zip(next).map(|(before, after)| before - after);
    (step.loss, gradient.collect())
}

fn smoothed(label_smoothing: f64, class_weights: Option<&[f64]>, mixed: bool) -> Loss {
    Loss::CrossEntropy {
        label_smoothing,
        class_weights: class_weights.map(<[f64]>::to_vec),
        mixed,
    }
}

fn expect(loss: Loss, value: f64, gradient: [f64; 12]) {
    let (actual, slopes) = of(loss.clone());
    assert!(
        (actual - value).abs() < 1e-9 * value.abs(),
        "{loss:?}: {actual} instead of {value}"
    );
    assert_eq!(slopes.len(), gradient.len());
    for (actual, expected) in slopes.iter().zip(gradient) {
        assert!(
            (actual - expected).abs() < 1e-12,
            "{loss:?}: gradient {slopes:?} instead of {gradient:?}"
        );
    }
}

#[test]
fn cross_entropy() {
    expect(
        smoothed(0.0, None, false),
        17.951032180759213,
        [
            -0.05360074135268103,
            0.009778143317671862,
            0.04382259803500917,
            0.2499999999995301,
            -0.25,
            4.698822041338877e-13,
            0.08550219128995612,
            0.09449453524540044,
            -0.17999672653535656,
            0.009314407590022855,
            -0.06291512243297645,
            0.05360071484295361,
        ],
    );
}

#[test]
fn label_smoothing() {
    expect(
        smoothed(0.1, None, false),
        17.07811551409255,
        [
            -0.03693407468601437,
            0.0014448099843385291,
            0.03548926470167584,
            0.24166666666619677,
            -0.23333333333333334,
            -0.00833333333286345,
            0.07716885795662279,
            0.08616120191206711,
            -0.1633300598686899,
            0.0009810742566895223,
            -0.04624845576630979,
            0.04526738150962028,
        ],
    );
}

/// PyTorch returns NaN.
#[test]
fn a_batch_of_classes_without_weight_has_no_gradient() {
    let (loss, gradient) = of(smoothed(0.0, Some(&[0.0; 3]), false));
    assert_eq!((loss, gradient), (0.0, vec![0.0; 12]));
    // Classes with a weight do not depend on the others.
    let (loss, gradient) = of(smoothed(0.0, Some(&[1.0, 0.0, 0.0]), false));
    assert!(loss.is_finite() && gradient[..3].iter().any(|slope| *slope != 0.0));
    assert_eq!(gradient[3..], [0.0; 9]);
}

#[test]
fn class_weights() {
    expect(
        smoothed(0.0, Some(&WEIGHTS), false),
        25.71955777813237,
        [
            -0.038982357347404385,
            0.007111376958306809,
            0.03187098038909758,
            0.36363636363568014,
            -0.36363636363636365,
            6.834650241947457e-13,
            0.031091705923620407,
            0.034361649180145615,
            -0.06545335510376603,
            0.013548229221851426,
            -0.09151290535705665,
            0.07796467613520526,
        ],
    );
}

#[test]
fn smoothing_with_class_weights() {
    expect(
        smoothed(0.1, Some(&WEIGHTS), false),
        24.174204730807794,
        [
            -0.02448054815167932,
            -0.004891312213600199,
            0.02937186036527951,
            0.34242424242358743,
            -0.3393939393939394,
            -0.003030303029648043,
            0.0291766606528304,
            0.026821990282952908,
            -0.055998650935783316,
            0.00692311361033489,
            -0.07860895854293687,
            0.07168584493260201,
        ],
    );
}

#[test]
fn mixed_targets() {
    expect(
        smoothed(0.0, None, true),
        7.776032180759212,
        [
            0.02139925864731898,
            -0.06522185668232813,
            0.04382259803500917,
            0.2499999999995301,
            9.938624339752973e-32,
            -0.24999999999953013,
            0.03550219128995612,
            0.04449453524540044,
            -0.07999672653535655,
            -0.11568559240997714,
            0.06208487756702355,
            0.05360071484295361,
        ],
    );
}

#[test]
fn mixed_targets_smoothed_with_class_weights() {
    expect(
        smoothed(0.1, Some(&WEIGHTS), true),
        5.581769136824886,
        [
            0.08686704612621707,
            -0.13908545559792887,
            0.0522184094717118,
            0.13333333333306704,
            -0.016666666666666666,
            -0.1166666666664004,
            0.025898697262026007,
            -0.01910173067259559,
            -0.0067969665894304105,
            -0.10717220220129982,
            0.03272448709830118,
            0.07444771510299862,
        ],
    );
}

#[test]
fn binary_cross_entropy() {
    expect(
        Loss::BinaryCrossEntropy {
            positive_weights: None,
        },
        3.1106085600145494,
        [
            -0.009933576835176474,
            0.02241178511416626,
            -0.03146172239984545,
            0.08333333333332554,
            3.5402952127429907e-19,
            0.07938117723520279,
            -0.041666666666666664,
            -0.03958506771008833,
            -0.04581949977603982,
            0.015202126983863029,
            -0.015202126983863029,
            0.046848041740483175,
        ],
    );
}

#[test]
fn positive_weights() {
    expect(
        Loss::BinaryCrossEntropy {
            positive_weights: Some(WEIGHTS.to_vec()),
        },
        3.128083727620839,
        [
            -0.009933576835176474,
            0.02241178511416626,
            -0.015730861199922726,
            0.08333333333332554,
            3.5402952127429907e-19,
            0.07938117723520279,
            -0.041666666666666664,
            -0.07917013542017666,
            -0.02290974988801991,
            0.015202126983863029,
            -0.030404253967726058,
            0.046848041740483175,
        ],
    );
}

#[test]
fn mean_squared() {
    expect(
        Loss::MeanSquared,
        209.44854166666667,
        [
            0.21666666666666667,
            -0.21666666666666667,
            0.08333333333333333,
            5.0,
            -6.666666666666666,
            0.3333333333333333,
            -0.03333333333333333,
            -0.016666666666666666,
            -0.13333333333333333,
            -0.3333333333333333,
            0.16666666666666666,
            0.041666666666666664,
        ],
    );
}

#[test]
fn weights_for_other_outputs_are_refused() {
    let settings = StepSettings {
        loss: smoothed(0.0, Some(&[1.0, 1.0]), false),
        ..super::harness::PLAIN.into()
    };
    let error = TrainingGraph::build(&model(), 4, &settings).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("3 outputs, but the loss has weights for 2"),
        "{error}"
    );
}

#[test]
fn settings_out_of_range_are_refused() {
    let losses = [
        smoothed(1.0, None, false),
        smoothed(0.0, Some(&[1.0, -1.0, f64::NAN]), false),
        Loss::BinaryCrossEntropy {
            positive_weights: Some(vec![0.0]),
        },
    ];
    for loss in losses {
        let settings = StepSettings {
            loss,
            ..super::harness::PLAIN.into()
        };
        assert!(
            matches!(settings.check(), Err(TrainingError::Setting { .. })),
            "{settings:?}"
        );
    }
    let nesterov = Optimizer::Sgd {
        momentum: 0.0,
        nesterov: true,
        weight_decay: 0.0,
    };
    assert!(nesterov.check().is_err());
}
