//! Affine quantization to eight bits: `x = offset + scale * (q + 128)` with `q` from -128 to 127.

/// How the eight-bit values of one slice stand for its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    /// The step between neighboring values; zero for a constant slice.
    pub scale: f32,
    /// The least value, which -128 stands for. Zero for the output of a ReLU, so that its zeros stay zeros.
    pub offset: f32,
}

/// Values looked at side by side, so that the compiler uses vector registers.
const LANES: usize = 8;

/// Beyond this the arithmetic of ranges and of decoding could overflow.
const LARGEST: f32 = f32::MAX / 4.0;

/// Below this a step is subnormal and its inverse overflows: the slice counts as constant, which costs at most 3e-36.
const NARROWEST: f32 = 255.0 * f32::MIN_POSITIVE;

/// Adding this to 0..=255 leaves the nearest whole number in the low byte, ties to even.
const ROUNDER: f32 = 8_388_608.0;

/// Quantizes one slice into `into`, which is as long. Each value is then off by at most half a step and a few units in the
/// last place. `None`, with `into` as it was, when the slice has NaN, an infinity or a value beyond a quarter of the
/// largest `f32`, or when the lengths differ.
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

/// Writes what the quantized values stand for. `false`, and nothing written, when the lengths differ.
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

/// The least and the greatest value; `None` for an empty slice or one with NaN or infinities.
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
        // Zero times NaN or an infinity is NaN, and stays it.
        poison
            .iter_mut()
            .zip(chunk)
            .for_each(|(poison, &v)| *poison += v * 0.0);
    }
    let all = |rest: &[f32], lanes: [f32; LANES], pick: fn(f32, f32) -> f32, first: f32| {
        rest.iter()
            .copied()
            .chain(lanes)
            .fold(first, |best, v| pick(v, best))
    };
    let poisoned = rest.iter().map(|v| v * 0.0).chain(poison).sum::<f32>().is_nan();
    let least = all(rest, least, lesser, f32::INFINITY);
    let most = all(rest, most, greater, f32::NEG_INFINITY);
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
    fn what_eight_bits_cannot_stand_for_is_refused() {
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
