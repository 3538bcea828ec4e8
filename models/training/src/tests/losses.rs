//! Losses against PyTorch's values, which `losses.py` prints, and their gradients against differences.

use super::harness::{Batch, Net, Trained, tensor, values};
use crate::{Loss, Optimizer, StepSettings, TrainingError, TrainingGraph};
use frostline_graph::Model;
use frostline_tensor::{DType, Tensor};

const LOGITS: [f64; 12] = [2.0, -1.0, 0.5, 30.0, -40.0, 3.0, 0.0, 0.1, -0.2, -1.5, 1.5, 0.25];
const CLASSES: [i64; 4] = [0, 1, 2, 1];
const PROBABILITIES: [f64; 12] = [0.7, 0.3, 0.0, 0.0, 0.0, 1.0, 0.2, 0.2, 0.6, 0.5, 0.5, 0.0];
const YES: [f64; 12] = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0];
const WEIGHTS: [f64; 3] = [1.0, 2.0, 0.5];

/// The logits are a weight, so that a plain step of rate 1 subtracts the loss' gradient from them.
fn model() -> Model {
    Net::new(&[3])
        .stored("logit", &tensor(&[4, 3], DType::F64, LOGITS.to_vec()))
        .op("Mul", &["x", "logit"], "logits")
        .model()
}

/// Loss and gradient.
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
        1.79510321807592135e+01,
        [
            -5.36007413526810306e-02,
            9.77814331767186233e-03,
            4.38225980350091734e-02,
            2.49999999999530098e-01,
            -2.50000000000000000e-01,
            4.69882204133887689e-13,
            8.55021912899561198e-02,
            9.44945352454004406e-02,
            -1.79996726535356560e-01,
            9.31440759002285547e-03,
            -6.29151224329764502e-02,
            5.36007148429536104e-02,
        ],
    );
}

#[test]
fn label_smoothing() {
    expect(
        smoothed(0.1, None, false),
        1.70781155140925485e+01,
        [
            -3.69340746860143676e-02,
            1.44480998433852911e-03,
            3.54892647016758420e-02,
            2.41666666666196767e-01,
            -2.33333333333333337e-01,
            -8.33333333286345040e-03,
            7.71688579566227884e-02,
            8.61612019120671091e-02,
            -1.63330059868689897e-01,
            9.81074256689522251e-04,
            -4.62484557663097873e-02,
            4.52673815096202789e-02,
        ],
    );
}

#[test]
fn class_weights() {
    expect(
        smoothed(0.0, Some(&WEIGHTS), false),
        2.57195577781323692e+01,
        [
            -3.89823573474043852e-02,
            7.11137695830680889e-03,
            3.18709803890975807e-02,
            3.63636363635680138e-01,
            -3.63636363636363646e-01,
            6.83465024194745702e-13,
            3.10917059236204066e-02,
            3.43616491801456148e-02,
            -6.54533551037660283e-02,
            1.35482292218514263e-02,
            -9.15129053570566536e-02,
            7.79646761352052603e-02,
        ],
    );
}

#[test]
fn smoothing_with_class_weights() {
    expect(
        smoothed(0.1, Some(&WEIGHTS), false),
        2.41742047308077943e+01,
        [
            -2.44805481516793197e-02,
            -4.89131221360019925e-03,
            2.93718603652795111e-02,
            3.42424242423587433e-01,
            -3.39393939393939414e-01,
            -3.03030302964804295e-03,
            2.91766606528304009e-02,
            2.68219902829529080e-02,
            -5.59986509357833159e-02,
            6.92311361033489010e-03,
            -7.86089585429368687e-02,
            7.16858449326020081e-02,
        ],
    );
}

#[test]
fn mixed_targets() {
    expect(
        smoothed(0.0, None, true),
        7.77603218075921188e+00,
        [
            2.13992586473189805e-02,
            -6.52218566823281332e-02,
            4.38225980350091734e-02,
            2.49999999999530098e-01,
            9.93862433975297327e-32,
            -2.49999999999530126e-01,
            3.55021912899561171e-02,
            4.44945352454004378e-02,
            -7.99967265353565549e-02,
            -1.15685592409977139e-01,
            6.20848775670235498e-02,
            5.36007148429536104e-02,
        ],
    );
}

#[test]
fn mixed_targets_smoothed_with_class_weights() {
    expect(
        smoothed(0.1, Some(&WEIGHTS), true),
        5.58176913682488607e+00,
        [
            8.68670461262170679e-02,
            -1.39085455597928870e-01,
            5.22184094717118019e-02,
            1.33333333333067044e-01,
            -1.66666666666666664e-02,
            -1.16666666666400395e-01,
            2.58986972620260068e-02,
            -1.91017306725955911e-02,
            -6.79696658943041050e-03,
            -1.07172202201299818e-01,
            3.27244870983011832e-02,
            7.44477151029986212e-02,
        ],
    );
}

#[test]
fn binary_cross_entropy() {
    expect(
        Loss::BinaryCrossEntropy {
            positive_weights: None,
        },
        3.11060856001454944e+00,
        [
            -9.93357683517647437e-03,
            2.24117851141662598e-02,
            -3.14617223998454529e-02,
            8.33333333333255433e-02,
            3.54029521274299073e-19,
            7.93811772352027850e-02,
            -4.16666666666666644e-02,
            -3.95850677100883300e-02,
            -4.58194997760398223e-02,
            1.52021269838630291e-02,
            -1.52021269838630291e-02,
            4.68480417404831748e-02,
        ],
    );
}

#[test]
fn positive_weights() {
    expect(
        Loss::BinaryCrossEntropy {
            positive_weights: Some(WEIGHTS.to_vec()),
        },
        3.12808372762083886e+00,
        [
            -9.93357683517647437e-03,
            2.24117851141662598e-02,
            -1.57308611999227264e-02,
            8.33333333333255433e-02,
            3.54029521274299073e-19,
            7.93811772352027850e-02,
            -4.16666666666666644e-02,
            -7.91701354201766599e-02,
            -2.29097498880199112e-02,
            1.52021269838630291e-02,
            -3.04042539677260581e-02,
            4.68480417404831748e-02,
        ],
    );
}

#[test]
fn mean_squared() {
    expect(
        Loss::MeanSquared,
        2.09448541666666671e+02,
        [
            2.16666666666666674e-01,
            -2.16666666666666674e-01,
            8.33333333333333287e-02,
            5.00000000000000000e+00,
            -6.66666666666666607e+00,
            3.33333333333333315e-01,
            -3.33333333333333329e-02,
            -1.66666666666666664e-02,
            -1.33333333333333331e-01,
            -3.33333333333333315e-01,
            1.66666666666666657e-01,
            4.16666666666666644e-02,
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
            .contains("3 outputs, but there are weights for 2"),
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
