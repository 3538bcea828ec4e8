use crate::arithmetic::{ActivationScale, IntegerWeights, quantize_weights};
use crate::{Range, WeightBits};
use proptest::prelude::*;

fn over(least: f32, greatest: f32) -> ActivationScale {
    ActivationScale::from_range(Range { least, greatest })
}

#[test]
fn ranges_include_zero() {
    assert_eq!(
        over(0.0, 255.0),
        ActivationScale {
            scale: 1.0,
            zero_point: 0
        }
    );
    assert_eq!(
        over(51.0, 255.0),
        ActivationScale {
            scale: 1.0,
            zero_point: 0
        }
    );
    assert_eq!(
        over(-255.0, -3.0),
        ActivationScale {
            scale: 1.0,
            zero_point: 255
        }
    );
    // Empty and tiny ranges have no normal scale.
    for nothing in [over(0.0, 0.0), over(0.0, 1e-40)] {
        assert_eq!(
            nothing,
            ActivationScale {
                scale: 1.0,
                zero_point: 0
            }
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn activations_are_off_by_half_a_step(least in -1e3_f32..0.0, greatest in 1e-3_f32..1e3, at in 0.0_f32..1.0) {
        let ActivationScale { scale, zero_point } = over(least, greatest);
        let value = least + at * (greatest - least);
        let integer = ((value / scale).round_ties_even() + f32::from(zero_point)).clamp(0.0, 255.0);
        let back = (integer - f32::from(zero_point)) * scale;
        prop_assert!((back - value).abs() <= scale * 1.01, "{value} became {back}");
        // A rounded value is rounded to itself.
        let again = ((back / scale).round_ties_even() + f32::from(zero_point)).clamp(0.0, 255.0);
        prop_assert_eq!(again, integer);
    }

    #[test]
    fn weights_are_off_by_half_a_step_and_biases_fit(
        weights in prop::collection::vec(-2.0_f32..2.0, 12),
        biases in prop::collection::vec(-1e6_f32..1e6, 3),
        input in 1e-6_f32..1.0,
        seven in any::<bool>(),
        outer in any::<bool>(),
    ) {
        let bits = if seven { WeightBits::Seven } else { WeightBits::Eight };
        let inner = if outer { 4 } else { 1 };
        let IntegerWeights { weights: rounded, scales, biases: integers } =
            quantize_weights(&weights, (3, inner), &biases, input, bits);
        for (index, (weight, rounded)) in weights.iter().zip(&rounded).enumerate() {
            let scale = scales[index / inner % 3];
            prop_assert!((f32::from(*rounded) * scale - weight).abs() <= scale * 0.501);
            prop_assert!(f32::from(*rounded).abs() <= bits.greatest());
        }
        for (channel, (bias, integer)) in biases.iter().zip(&integers).enumerate() {
            let step = f64::from(scales[channel]) * f64::from(input);
            prop_assert!((f64::from(*integer) * step - f64::from(*bias)).abs() <= step * 0.51);
        }
    }
}

#[test]
fn channels_of_zeros_stay_zeros() {
    let rounded = quantize_weights(&[0.0, 0.0, 1.0, -1.0], (2, 2), &[], 0.1, WeightBits::Eight);
    assert_eq!(rounded.weights, [0, 0, 127, -127]);
    assert_eq!(rounded.scales[0], 1.0);
}
