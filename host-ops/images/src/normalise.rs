use crate::ImageError;
use frostline_tensor::{PixelSpec, Tensor};

/// What each byte becomes, per channel: `(byte / 255 - mean) / std` in `f32`, in torchvision's order of operations
/// (`ToTensor`, then `Normalize`).
pub(crate) struct NormalisationTable([[f32; 256]; 3]);

impl NormalisationTable {
    pub(crate) fn new(spec: &PixelSpec) -> Self {
        let mut table = [[0.0; 256]; 3];
        for ((values, mean), std) in table.iter_mut().zip(spec.mean).zip(spec.std) {
            for (byte, value) in (0..=u8::MAX).zip(values.iter_mut()) {
                *value = (f32::from(byte) / 255.0 - mean) / std;
            }
        }
        Self(table)
    }

    /// Normalises one sample `[3, h, w]`; `output` is as long as `sample`.
    pub(crate) fn apply(&self, sample: &[u8], output: &mut [f32]) {
        let plane = (sample.len() / 3).max(1);
        let channels = sample.chunks_exact(plane).zip(output.chunks_exact_mut(plane));
        for ((bytes, values), table) in channels.zip(&self.0) {
            for (value, &byte) in values.iter_mut().zip(bytes) {
                // Never out of range; `get` compiles to a plain load.
                *value = table.get(usize::from(byte)).copied().unwrap_or_default();
            }
        }
    }
}

/// Turns crops `u8[n, 3, h, w]` into network input `f32[n, 3, h, w]`: exactly the values that loading the same samples to
/// [`PixelFormat::F32`](frostline_tensor::PixelFormat::F32) gives.
///
/// # Errors
/// [`ImageError::Spec`] for a spec that cannot be carried out, [`ImageError::Mismatch`] when `pixels` is not of that type and shape.
pub fn normalise(pixels: &Tensor, spec: &PixelSpec) -> Result<Tensor, ImageError> {
    spec.check()?;
    let sample_shape = spec.sample_shape();
    let mismatch = || ImageError::Mismatch {
        expected: format!("u8[n, 3, {}, {}]", spec.crop_height, spec.crop_width),
        actual: pixels.describe(),
    };
    let bytes = pixels.as_u8().ok_or_else(mismatch)?;
    if pixels.shape().dims().get(1..) != Some(sample_shape.as_slice()) {
        return Err(mismatch());
    }
    let sample_len = pixels.shape().row()?.elements()?;
    let table = NormalisationTable::new(spec);
    let mut values = vec![0.0_f32; bytes.len()];
    for (sample, output) in bytes
        .chunks_exact(sample_len)
        .zip(values.chunks_exact_mut(sample_len))
    {
        table.apply(sample, output);
    }
    Ok(Tensor::f32(pixels.shape().clone(), values)?)
}
