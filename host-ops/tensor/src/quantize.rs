//! Affine quantization to eight bits. It encodes `x = offset + scale * (q + 128)` with `q` in the range -128
//! to 127.

/// Maps the eight-bit values of a slice to `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    /// Step between neighboring values. Zero for a constant slice.
    pub scale: f32,
    /// Minimum of the slice, encoded as -128. For the output of a ReLU this is zero, so zeros are exact.
    pub offset: f32,
}

/// Values processed together, so that the compiler uses vector registers.
const LANES: usize = 8;

/// Largest magnitude that can be quantized. Larger values could overflow when computing the range or
/// decoding.
const LARGEST: f32 = f32::MAX / 4.0;

/// Narrowest range that can be quantized. A smaller step would be subnormal and have an infinite inverse, so
/// the slice is encoded as a constant. The error is below 3e-36.
const NARROWEST: f32 = 255.0 * f32::MIN_POSITIVE;

/// Adding this to a value from 0 to 255 rounds it to the nearest integer in the low byte, ties to even.
const ROUNDER: f32 = 8_388_608.0;

/// Quantizes a slice into `into`, which must have the same length. The error of each value is up to half a
/// step plus a few units in the last place.
///
/// Returns `None` and leaves `into` unchanged if the slice is empty, the lengths differ, or the slice
/// contains NaN, an infinity or a magnitude above a quarter of the largest `f32`.
pub fn quantize(values: &[f32], into: &mut [i8]) -> Option<Affine> {
    let (least, most) = range(values)?;
    if values.len() != into.len() || least < -LARGEST || most > LARGEST {
        return None;
    }
    let width = most - least;
    if width < NARROWEST {
        into.fill(i8::MIN);
        return Some(Affine {
            scale: 0.0,
            offset: least,
        });
    }
    let steps = 255.0 / width;
    for (quantized, value) in into.iter_mut().zip(values) {
        let rounded = (value - least) * steps + ROUNDER;
        *quantized = (rounded.to_bits() as u8).wrapping_sub(128).cast_signed();
    }
    Some(Affine {
        scale: width / 255.0,
        offset: least,
    })
}

/// Decodes quantized values into `into`. Returns false and writes nothing if the lengths differ.
pub fn dequantize(values: &[i8], affine: Affine, into: &mut [f32]) -> bool {
    if values.len() != into.len() {
        return false;
    }
    for (value, quantized) in into.iter_mut().zip(values) {
        let step = quantized.cast_unsigned().wrapping_add(128);
        *value = affine.offset + affine.scale * f32::from(step);
    }
    true
}

/// Returns the minimum and maximum, or `None` if the slice is empty or contains NaN or infinities.
fn range(values: &[f32]) -> Option<(f32, f32)> {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut least = [f32::INFINITY; LANES];
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut poison = [0.0_f32; LANES];
    for chunk in chunks {
        least
            .iter_mut()
            .zip(chunk)
            .for_each(|(least, &v)| *least = lesser(v, *least));
        most.iter_mut()
            .zip(chunk)
            .for_each(|(most, &v)| *most = greater(v, *most));
        // Multiplying NaN or an infinity by zero gives NaN, which then persists in the sum.
        poison
            .iter_mut()
            .zip(chunk)
            .for_each(|(poison, &v)| *poison += v * 0.0);
    }
    let poisoned = rest.iter().map(|v| v * 0.0).chain(poison).sum::<f32>().is_nan();
    let least = rest
        .iter()
        .copied()
        .chain(least)
        .fold(f32::INFINITY, |best, v| lesser(v, best));
    let most = rest
        .iter()
        .copied()
        .chain(most)
        .fold(f32::NEG_INFINITY, |best, v| greater(v, best));
    (!poisoned && !values.is_empty()).then_some((least, most))
}

fn lesser(left: f32, right: f32) -> f32 {
    if left < right { left } else { right }
}

fn greater(left: f32, right: f32) -> f32 {
    if left > right { left } else { right }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[f32]) -> Option<(Vec<f32>, Affine)> {
        let mut quantized = vec![0; values.len()];
        let affine = quantize(values, &mut quantized)?;
        let mut back = vec![0.0; values.len()];
        assert!(dequantize(&quantized, affine, &mut back));
        Some((back, affine))
    }

    fn noise(count: usize, seed: u32, size: f32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next() * size).collect()
    }

    #[test]
    fn every_value_is_within_half_a_step() {
        for size in [1e-30, 1e-3, 1.0, 4.0, 1e6, 1e30, f32::MAX / 4.0] {
            for length in [1, 2, 7, 8, 63, 64, 1000] {
                let values = noise(length, length as u32, size);
                let (back, affine) = round_trip(&values).unwrap();
                let ulps = 4.0 * f32::EPSILON * size;
                for (value, back) in values.iter().zip(&back) {
                    let bound = affine.scale * 0.5 + ulps;
                    assert!(
                        (value - back).abs() <= bound,
                        "{value} became {back}, a step is {}",
                        affine.scale
                    );
                }
            }
        }
    }

    #[test]
    fn zeros_of_a_relu_stay_zero_and_constants_exact() {
        let values: Vec<f32> = noise(500, 3, 9.0).into_iter().map(|v| v.max(0.0)).collect();
        let (back, _) = round_trip(&values).unwrap();
        let zeros = |values: &[f32]| values.iter().map(|v| *v == 0.0).collect::<Vec<_>>();
        for (was, is) in zeros(&values).into_iter().zip(zeros(&back)) {
            assert!(!was || is);
        }
        for constant in [0.0, -0.0, 3.25, -1e-40, 1e37] {
            assert_eq!(round_trip(&[constant; 70]).unwrap().0, [constant; 70]);
        }
    }

    #[test]
    fn differences_too_small_for_a_step_vanish() {
        let (back, affine) = round_trip(&[0.0, 1e-40, 2e-36]).unwrap();
        assert_eq!((back, affine.scale), (vec![0.0; 3], 0.0));
    }

    #[test]
    fn unrepresentable_values_are_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            for length in [1, 8, 9, 100] {
                for at in [0, length / 2, length - 1] {
                    let mut values = noise(length, 1, 1.0);
                    values[at] = bad;
                    assert_eq!(round_trip(&values), None, "{bad} at {at} of {length}");
                }
            }
        }
        assert_eq!(quantize(&[], &mut []), None);
        assert_eq!(quantize(&[1.0], &mut []), None);
        let affine = Affine {
            scale: 1.0,
            offset: 0.0,
        };
        assert!(!dequantize(&[1], affine, &mut []));
    }
}
