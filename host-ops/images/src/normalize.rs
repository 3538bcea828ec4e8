use crate::ImageError;
use frostline_tensor::{Normalization, PixelSpec, Tensor};

/// Converts crops `u8[n, 3, h, w]` to network input `f32[n, 3, h, w]`. The values are identical to loading
/// the same samples as [`PixelFormat::F32`](frostline_tensor::PixelFormat::F32).
///
/// # Errors
/// Returns [`ImageError::Spec`] if the spec is invalid, and [`ImageError::Mismatch`] if `pixels` has another
/// type or shape.
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
