//! Conversion of pixel bytes to network input.

use crate::{PixelSpec, ShapeError, Tensor};
use serde::{Deserialize, Serialize};

/// Normalization of pixels `u8[n, 3, h, w]`. Each value is `(byte / 255 - mean) / std` per channel, computed
/// in `f32` in torchvision's order of operations (`ToTensor`, then `Normalize`). Equality compares bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Normalization {
    mean: [u32; 3],
    std: [u32; 3],
}

/// Normalized value of each byte, per channel.
pub struct NormalizationTable([[f32; 256]; 3]);

impl Normalization {
    /// Returns the normalization that `spec` describes.
    pub fn from_spec(spec: &PixelSpec) -> Self {
        Self {
            mean: spec.mean.map(f32::to_bits),
            std: spec.std.map(f32::to_bits),
        }
    }

    /// Returns the mean per channel.
    pub fn mean(&self) -> [f32; 3] {
        self.mean.map(f32::from_bits)
    }

    /// Returns the standard deviation per channel.
    pub fn std(&self) -> [f32; 3] {
        self.std.map(f32::from_bits)
    }

    /// Normalizes `pixels`.
    ///
    /// # Errors
    /// Returns [`ShapeError::Rows`] if `pixels` is not `u8[n, 3, h, w]`.
    pub fn apply(&self, pixels: &Tensor) -> Result<Tensor, ShapeError> {
        let mut floats = vec![0.0; pixels.shape().elements()?];
        self.write(pixels, &mut floats)?;
        Tensor::f32(pixels.shape().clone(), floats)
    }

    /// Writes the result of [`Normalization::apply`] to `floats`.
    ///
    /// # Errors
    /// Returns [`ShapeError::Rows`] if `pixels` is not `u8[n, 3, h, w]`, and [`ShapeError::Length`] if
    /// `floats` has a different number of elements.
    pub fn write(&self, pixels: &Tensor, floats: &mut [f32]) -> Result<(), ShapeError> {
        let shape = pixels.shape();
        let (Some(bytes), [_, 3, height, width]) = (pixels.as_u8(), shape.dims()) else {
            return Err(ShapeError::Rows {
                left: "u8[n, 3, h, w]".to_owned(),
                right: pixels.describe(),
            });
        };
        if bytes.len() != floats.len() {
            return Err(ShapeError::Length {
                shape: shape.clone(),
                expected: bytes.len(),
                actual: floats.len(),
            });
        }
        let table = self.table();
        let sample = (3 * height * width).max(1);
        for (bytes, floats) in bytes.chunks_exact(sample).zip(floats.chunks_exact_mut(sample)) {
            table.apply(bytes, floats);
        }
        Ok(())
    }

    /// Returns a lookup table for normalizing many samples.
    pub fn table(&self) -> NormalizationTable {
        let mut table = [[0.0; 256]; 3];
        for ((values, mean), std) in table.iter_mut().zip(self.mean()).zip(self.std()) {
            for (byte, value) in (0..=u8::MAX).zip(values.iter_mut()) {
                *value = (f32::from(byte) / 255.0 - mean) / std;
            }
        }
        NormalizationTable(table)
    }
}

impl NormalizationTable {
    /// Normalizes one sample `[3, h, w]` into `floats`, which must have the same length.
    pub fn apply(&self, sample: &[u8], floats: &mut [f32]) {
        let plane = (sample.len() / 3).max(1);
        let channels = sample.chunks_exact(plane).zip(floats.chunks_exact_mut(plane));
        for ((bytes, values), table) in channels.zip(&self.0) {
            for (value, &byte) in values.iter_mut().zip(bytes) {
                // The index is always in range; `get` compiles to a plain load.
                *value = table.get(usize::from(byte)).copied().unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Data;

    #[test]
    fn every_byte_of_every_channel_is_what_the_formula_says() {
        let spec = PixelSpec::imagenet(1, 256);
        let bytes: Vec<u8> = (0..6).flat_map(|_| 0..=u8::MAX).collect();
        let pixels = Tensor::new([2, 3, 1, 256], Data::U8(bytes)).unwrap();
        let normalization = Normalization::from_spec(&spec);
        let floats = normalization.apply(&pixels).unwrap();
        for (index, value) in floats.as_f32().unwrap().iter().enumerate() {
            let channel = index / 256 % 3;
            let expected = ((index % 256) as f32 / 255.0 - spec.mean[channel]) / spec.std[channel];
            assert_eq!(value.to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn non_pixel_tensors_are_refused() {
        let normalization = Normalization::from_spec(&PixelSpec::imagenet(1, 1));
        let pixels = |shape: &[usize]| Tensor::new(shape.to_vec(), Data::U8(vec![0; shape.iter().product()]));
        for shape in [&[3, 1, 1][..], &[2, 4, 1, 1], &[1, 3, 1, 1, 1]] {
            assert!(normalization.apply(&pixels(shape).unwrap()).is_err());
        }
        assert!(
            normalization
                .apply(&Tensor::f32([1, 3, 1, 1], vec![0.0; 3]).unwrap())
                .is_err()
        );
        let one = pixels(&[1, 3, 1, 1]).unwrap();
        assert!(normalization.write(&one, &mut [0.0; 2]).is_err());
        for none in [&[0, 3, 1, 1][..], &[2, 3, 0, 5]] {
            assert!(
                normalization
                    .apply(&pixels(none).unwrap())
                    .unwrap()
                    .data()
                    .is_empty()
            );
        }
    }
}
