use crate::{DecodeLimits, ImageError, RgbImage, decode};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use frostline_tensor::PixelSpec;

/// Where a spec's crop lies in an image, along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    /// Pixels the source has.
    source: u32,
    /// Pixels it has after the resize.
    resized: u64,
    /// First pixel of the crop after the resize.
    start: u64,
    /// Pixels of the crop.
    crop: u32,
}

impl Axis {
    /// torchvision's `Resize(short)` (the other side is truncated) and `CenterCrop` (Python rounds halves to even).
    fn new(source: u32, other: u32, short: u32, crop: u32) -> Self {
        let resized = if source <= other {
            u64::from(short)
        } else {
            u64::from(short) * u64::from(source) / u64::from(other.max(1))
        };
        let margin = resized.saturating_sub(u64::from(crop));
        let half = margin / 2;
        let start = half + u64::from(margin % 2 == 1 && half % 2 == 1);
        Self {
            source,
            resized,
            start,
            crop,
        }
    }

    /// The crop in the source's own coordinates: offset and length.
    fn source_span(&self) -> (f64, f64) {
        let scale = f64::from(self.source) / self.resized.max(1) as f64;
        let start = self.start as f64 * scale;
        let length = f64::from(self.crop) * scale;
        (start, length.min(f64::from(self.source) - start))
    }
}

/// Decodes an object and returns the crop `spec` describes as `u8[3, crop_height, crop_width]`, before normalisation.
///
/// # Errors
/// [`ImageError`], as [`decode`]; and [`ImageError::Spec`] for a spec that cannot be carried out.
pub fn load(bytes: &[u8], spec: &PixelSpec, limits: &DecodeLimits) -> Result<Vec<u8>, ImageError> {
    spec.check()?;
    resize_and_crop(&decode(bytes, limits)?, spec)
}

/// Resizes the short side to `spec.resize` (bilinear, antialiased) and crops the centre, as `u8[3, crop_height, crop_width]`.
///
/// Only pixels of the crop are computed, so an image of extreme proportions costs no more than others.
///
/// # Errors
/// [`ImageError::Spec`] for a spec that cannot be carried out.
pub fn resize_and_crop(image: &RgbImage, spec: &PixelSpec) -> Result<Vec<u8>, ImageError> {
    spec.check()?;
    let (width, height) = (image.width(), image.height());
    let (left, crop_width) = Axis::new(width, height, spec.resize, spec.crop_width).source_span();
    let (top, crop_height) = Axis::new(height, width, spec.resize, spec.crop_height).source_span();
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .crop(left, top, crop_width, crop_height)
        .use_alpha(false);
    let failed = |reason: String| ImageError::Layout {
        expected: "an image that can be resized".to_owned(),
        actual: reason,
    };
    let source = TypedImageRef::<U8x3>::from_buffer(width, height, image.pixels())
        .map_err(|e| failed(e.to_string()))?;
    let mut crop = TypedImage::<U8x3>::new(spec.crop_width, spec.crop_height);
    Resizer::new()
        .resize_typed(&source, &mut crop, &options)
        .map_err(|e| failed(e.to_string()))?;
    Ok(planes(crop.pixels()))
}

/// `[h, w, 3]` to `[3, h, w]`.
fn planes(pixels: &[U8x3]) -> Vec<u8> {
    let mut planes = Vec::with_capacity(pixels.len() * 3);
    planes.extend(pixels.iter().map(|pixel| pixel.0[0]));
    planes.extend(pixels.iter().map(|pixel| pixel.0[1]));
    planes.extend(pixels.iter().map(|pixel| pixel.0[2]));
    planes
}
