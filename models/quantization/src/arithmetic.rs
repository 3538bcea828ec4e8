//! Scales, zero points and rounding to integers.

use crate::{Range, WeightBits};

/// Quantization parameters of an activation. An integer represents `(integer - zero_point) * scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ActivationScale {
    pub(crate) scale: f32,
    pub(crate) zero_point: u8,
}

impl ActivationScale {
    /// Returns the parameters for `range`, widened to include zero, which padding and activation functions
    /// need exactly. If the range is empty or too small for a normal scale, the scale is 1 and the zero point
    /// 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn from_range(range: Range) -> Self {
        let least = range.least.min(0.0);
        let greatest = range.greatest.max(0.0);
        let scale = (greatest - least) / 255.0;
        if !scale.is_normal() {
            return Self {
                scale: 1.0,
                zero_point: 0,
            };
        }
        Self {
            scale,
            zero_point: (-least / scale).round().clamp(0.0, 255.0) as u8,
        }
    }
}

/// Quantized weights and biases with a scale per output channel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IntegerWeights {
    pub(crate) weights: Vec<i8>,
    pub(crate) scales: Vec<f32>,
    /// Biases with the scales `input scale * scale`.
    pub(crate) biases: Vec<i32>,
}

/// Quantizes weights of shape `[.., channels, inner]` for an input with the scale `input`.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn quantize_weights(
    weights: &[f32],
    (channels, inner): (usize, usize),
    biases: &[f32],
    input: f32,
    bits: WeightBits,
) -> IntegerWeights {
    let mut most = vec![0.0_f32; channels];
    for (index, weight) in weights.iter().enumerate() {
        if let Some(most) = most.get_mut(channel_of(index, channels, inner)) {
            *most = most.max(weight.abs());
        }
    }
    let scales: Vec<f32> = most
        .iter()
        .enumerate()
        .map(|(channel, most)| {
            // Bound the scale from below, because the bias of near-zero weights would overflow 32 bits.
            let bias = biases.get(channel).copied().unwrap_or_default();
            let of_bias = bias.abs() / input / (i32::MAX / 2) as f32;
            let scale = (most / bits.greatest()).max(of_bias);
            if scale.is_normal() { scale } else { 1.0 }
        })
        .collect();
    IntegerWeights {
        weights: weights
            .iter()
            .enumerate()
            .map(|(index, weight)| {
                let scale = scales.get(channel_of(index, channels, inner)).unwrap_or(&1.0);
                (weight / scale).round_ties_even() as i8
            })
            .collect(),
        biases: biases
            .iter()
            .enumerate()
            .map(|(channel, bias)| {
                let scale = scales.get(channel).copied().unwrap_or(1.0);
                (f64::from(*bias) / (f64::from(input) * f64::from(scale))).round_ties_even() as i32
            })
            .collect(),
        scales,
    }
}

/// Returns the channel of the weight at `index` in the shape `[.., channels, inner]`.
fn channel_of(index: usize, channels: usize, inner: usize) -> usize {
    index / inner.max(1) % channels.max(1)
}
