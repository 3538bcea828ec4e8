use crate::ImageError;
use frostline_tensor::{Normalization, PixelSpec, Tensor};

/// Turns crops `u8[n, 3, h, w]` into network input `f32[n, 3, h, w]`: exactly the values that loading the same samples to
/// [`PixelFormat::F32`](frostline_tensor::PixelFormat::F32) gives.
///
/// # Errors
/// [`ImageError::Spec`] for a spec that cannot be carried out, [`ImageError::Mismatch`] when `pixels` is not of that type and shape.
pub fn normalize(pixels: &Tensor, spec: &PixelSpec) -> Result<Tensor, ImageError> {
    spec.check()?;
    let sample_shape = spec.sample_shape();
    let mismatch = || ImageError::Mismatch {
        expected: format!("u8[n, 3, {}, {}]", spec.crop_height, spec.crop_width),
        actual: pixels.describe(),
    };
    if pixels.shape().dims().get(1..) != Some(sample_shape.as_slice()) {
        return Err(mismatch());
    }
    Normalization::from_spec(spec)
        .apply(pixels)
        .map_err(|_| mismatch())
}
