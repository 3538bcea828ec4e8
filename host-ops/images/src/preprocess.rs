//! Preprocessing of samples: decoding, then resizing to the center crop or augmentation.

use crate::placement::{Placement, support};
use crate::resize::resize_and_crop;
use crate::{DecodeLimits, Draw, ImageError, Matrix, RgbImage, Undecoded, decode};
use frostline_tensor::{PixelSpec, View};
use std::ops::Range;

/// Decodes an object and returns the crop that `spec` describes as `u8[3, crop_height, crop_width]` before
/// normalization.
///
/// # Errors
/// Returns an error from [`decode()`] if the object cannot be decoded, and [`ImageError::Spec`] if the spec is
/// invalid.
pub fn load(bytes: &[u8], spec: &PixelSpec, limits: &DecodeLimits) -> Result<Vec<u8>, ImageError> {
    spec.check()?;
    resize_and_crop(&decode(bytes, limits)?, spec)
}

/// Decodes and crops like [`load`]. If there is a view, the sample `key` is augmented instead of cropped to
/// its center.
///
/// # Errors
/// Returns the errors of [`load`], and [`ImageError::Augmentation`] if the augmentation is invalid.
pub fn load_augmented(
    bytes: &[u8],
    spec: &PixelSpec,
    limits: &DecodeLimits,
    view: Option<&View>,
    key: &str,
) -> Result<Vec<u8>, ImageError> {
    spec.check()?;
    preprocess(&decode(bytes, limits)?, spec, view, key)
}

/// Returns the pixels of the sample `key`, augmented if there is a view.
pub(crate) fn preprocess(
    image: &RgbImage,
    spec: &PixelSpec,
    view: Option<&View>,
    key: &str,
) -> Result<Vec<u8>, ImageError> {
    let Some(view) = view else {
        return resize_and_crop(image, spec);
    };
    view.augmentation.check()?;
    Draw::new(view, key, (image.width(), image.height()), spec).apply(image, spec)
}

/// Returns the matrix that maps a position in the crop of the sample `key` to the position in its upright image of
/// `(width, height)`, augmented if there is a view. Positions are measured in pixels from the top left corner, so
/// the first pixel's center is at 0.5. Masks and boxes of the image can be moved with it as hosts move its pixels.
/// Sides of 0 are treated as 1.
///
/// # Errors
/// Returns [`ImageError::Spec`] if the spec is invalid, and [`ImageError::Augmentation`] if the augmentation is.
pub fn position_in_image(
    (width, height): (u32, u32),
    spec: &PixelSpec,
    view: Option<&View>,
    key: &str,
) -> Result<Matrix, ImageError> {
    spec.check()?;
    let size @ (width, height) = (width.max(1), height.max(1));
    let Some(view) = view else {
        return Ok(Placement::new(spec, (height, width)).position_in_image());
    };
    view.augmentation.check()?;
    Ok(Draw::new(view, key, size, spec).position_in_image(size, spec))
}

/// Parses the headers of an object and returns the maximum bytes that [`load`] or [`load_augmented`] allocates
/// at any time, without the object itself.
///
/// # Errors
/// Returns an error from [`Undecoded::read`], and [`ImageError::TooMuchMemory`] if resizing exceeds `limits`.
pub fn memory_needed(
    bytes: &[u8],
    spec: &PixelSpec,
    augmented: bool,
    limits: &DecodeLimits,
) -> Result<u64, ImageError> {
    spec.check()?;
    let image = Undecoded::read(bytes, limits)?;
    let needed = preparation_memory(&image, spec, augmented);
    limits.check_bytes(image.format(), needed)?;
    Ok(needed)
}

/// Returns the maximum bytes for decoding an image and for [`preprocess`].
pub(crate) fn preparation_memory(image: &Undecoded<'_>, spec: &PixelSpec, augmented: bool) -> u64 {
    image.memory_needed().max(resize_memory(image, spec, augmented))
}

/// Returns the maximum bytes that [`preprocess`] needs. This includes the image, the intermediate image, up
/// to three copies of the crop, and weights for each pixel of a row and column of the source
/// (`precompute_coefficients` in fast_image_resize).
fn resize_memory(image: &Undecoded<'_>, spec: &PixelSpec, augmented: bool) -> u64 {
    let width = image.width();
    let height = image.height();
    let (rows, columns) = if augmented {
        // A random crop can include any part of the image.
        (height, width)
    } else {
        let Placement { down, across, .. } = Placement::new(spec, (height, width));
        let count = |pixels: Range<u32>| pixels.end - pixels.start;
        (count(down.source_pixels()), count(across.source_pixels()))
    };
    let crop_width = u64::from(spec.crop_width);
    let crop_height = u64::from(spec.crop_height);
    let sides = u64::from(width) + u64::from(height) + 4 * (crop_width + crop_height);
    let weights = 32 * u64::from(support(spec.interpolation)) * sides;
    let between = (crop_width * u64::from(rows)).max(crop_height * u64::from(columns));
    let pixels = u64::from(width) * u64::from(height);
    3 * (pixels + between + 3 * crop_width * crop_height) + weights
}
