//! Conversion of slices to and from half precision. It uses the processor's conversion instructions if
//! available.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// Largest finite half-precision value. Larger finite values may become infinite.
const LARGEST: f32 = 65504.0;

/// Number of values without a branch, so that the compiler uses vector registers.
const LANES: usize = 1024;

/// Returns true if a finite value is too large for half precision. Infinities and NaN are representable and
/// do not count.
pub fn exceeds_f16(values: &[f32]) -> bool {
    let mut chunks = values.chunks(LANES);
    chunks.any(|chunk| {
        let values = chunk.iter();
        values.fold(false, |found, value| found | is_out_of_range(*value))
    })
}

fn is_out_of_range(value: f32) -> bool {
    // `&` instead of `&&` avoids a branch.
    (value.abs() > LARGEST) & (value.abs() < f32::INFINITY)
}

/// Returns true if no value is infinite or NaN.
pub fn all_finite(values: &[f32]) -> bool {
    let mut chunks = values.chunks(LANES);
    chunks.all(|chunk| {
        let values = chunk.iter();
        values.fold(true, |finite, value| finite & value.is_finite())
    })
}

/// Converts to half precision, rounding ties to even. Values beyond the finite range become infinite.
pub fn to_f16(values: &[f32]) -> Vec<f16> {
    let mut halves = vec![f16::ZERO; values.len()];
    halves.convert_from_f32_slice(values);
    halves
}

/// Converts to `f32` without loss. Returns false and writes nothing if the lengths differ.
pub fn from_f16(halves: &[f16], into: &mut [f32]) -> bool {
    let fits = halves.len() == into.len();
    if fits {
        halves.convert_to_f32_slice(into);
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_values_beyond_the_largest_half_exceed_it() {
        let fine = [
            65504.0,
            -65504.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            -0.0,
        ];
        for length in [6, 16, 17, 40] {
            let mut values: Vec<f32> = fine.iter().copied().cycle().take(length).collect();
            assert!(!exceeds_f16(&values), "{values:?}");
            for at in 0..length {
                for large in [65504.004, -65520.0, f32::MAX, f32::MIN] {
                    let before = std::mem::replace(&mut values[at], large);
                    assert!(exceeds_f16(&values), "{values:?}");
                    values[at] = before;
                }
            }
        }
    }

    #[test]
    fn slices_convert_as_single_values_do() {
        let values: Vec<f32> = (0..100_000_u32)
            .map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)))
            .collect();
        let halves = to_f16(&values);
        let mut back = vec![0.0; values.len()];
        assert!(from_f16(&halves, &mut back));
        for ((value, half), back) in values.iter().zip(&halves).zip(&back) {
            let single = f16::from_f32(*value);
            assert!(single == *half || single.is_nan() && half.is_nan(), "{value}");
            assert!(
                back.to_bits() == half.to_f32().to_bits() || back.is_nan(),
                "{value}"
            );
        }
        assert!(!from_f16(&halves, &mut [0.0]));
    }

    #[test]
    fn the_error_is_half_a_step_also_among_subnormals_and_signs_stay() {
        for value in [1.0, 3.1, 6.0e-5, 1.0e-6, 3.0e-8, 65504.0, -0.0, -2.5] {
            let mut back = [0.0];
            assert!(from_f16(&to_f16(&[value]), &mut back));
            let bound = (value.abs() * 2.0_f32.powi(-11)).max(2.0_f32.powi(-25));
            assert!((back[0] - value).abs() <= bound, "{value} became {}", back[0]);
            assert_eq!(back[0].is_sign_negative(), value.is_sign_negative());
        }
    }
}
