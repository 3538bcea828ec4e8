use crate::augment::Rgb;
use crate::{Area, DecodeLimits, Draw, ImageError, RgbImage, Undecoded, decode};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ImageView, ResizeAlg, ResizeOptions, Resizer};
use frostline_tensor::{PixelSpec, View};
use std::ops::Range;

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

    /// Pixels of the source for one after the resize.
    fn scale(&self) -> f64 {
        f64::from(self.source) / self.resized.max(1) as f64
    }

    /// The crop in the source's own coordinates: offset and length.
    fn source_span(&self) -> (f64, f64) {
        let start = self.start as f64 * self.scale();
        let length = f64::from(self.crop) * self.scale();
        (start, length.min(f64::from(self.source) - start))
    }

    /// The source's pixels that the crop is computed from: its span, and what the filter reaches on both sides.
    fn touched(&self) -> Range<u32> {
        let (start, length) = self.source_span();
        let reach = self.scale().max(1.0);
        let last = (start + length + reach).ceil().min(f64::from(self.source));
        // Both lie within the source, whose sides are `u32`.
        (start - reach).floor().max(0.0) as u32..last as u32
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

/// As [`load`]; with a view, augmented as that has it for the sample `key`.
///
/// # Errors
/// As [`load`]; and [`ImageError::Augmentation`] for one that cannot be carried out.
pub fn load_augmented(
    bytes: &[u8],
    spec: &PixelSpec,
    limits: &DecodeLimits,
    view: Option<&View>,
    key: &str,
) -> Result<Vec<u8>, ImageError> {
    spec.check()?;
    pixels_of(&decode(bytes, limits)?, spec, view, key)
}

/// The pixels of the sample `key`, as a view has it if there is one.
pub(crate) fn pixels_of(
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

/// The most bytes that [`pixels_of`] holds: the image, rows of the crop's width, the crop up to three times, and for every pixel of a row and a
/// column of the source its weights (`precompute_coefficients` of fast_image_resize).
pub(crate) fn resize_takes(image: &Undecoded<'_>, spec: &PixelSpec, augmented: bool) -> u64 {
    let (width, height) = (image.width(), image.height());
    let rows = if augmented {
        // Any part of it may be drawn.
        height
    } else {
        let rows = Axis::new(height, width, spec.resize, spec.crop_height).touched();
        rows.end - rows.start
    };
    let (crop_width, crop_height) = (u64::from(spec.crop_width), u64::from(spec.crop_height));
    let weights = 32 * (u64::from(width) + u64::from(height) + 4 * (crop_width + crop_height));
    let pixels = u64::from(width) * u64::from(height);
    3 * pixels + 3 * crop_width * (u64::from(rows) + 3 * crop_height) + weights
}

/// Resizes the short side to `spec.resize` (bilinear, antialiased) and crops the centre, as `u8[3, crop_height, crop_width]`.
///
/// First the width, then the height, with bytes between, as Pillow does: one value in some four hundred differs from Pillow's, by
/// one. Only pixels of the crop are computed, so an image of extreme proportions costs no more than others.
///
/// # Errors
/// [`ImageError::Spec`] for a spec that cannot be carried out.
pub fn resize_and_crop(image: &RgbImage, spec: &PixelSpec) -> Result<Vec<u8>, ImageError> {
    Ok(to_planes(&centre(image, spec)?))
}

/// [`resize_and_crop`], pixel by pixel.
pub(crate) fn centre(image: &RgbImage, spec: &PixelSpec) -> Result<Vec<Rgb>, ImageError> {
    spec.check()?;
    let (width, height) = (image.width(), image.height());
    let (left, crop_width) = Axis::new(width, height, spec.resize, spec.crop_width).source_span();
    let vertical = Axis::new(height, width, spec.resize, spec.crop_height);
    let (top, crop_height) = vertical.source_span();
    let rows = vertical.touched();
    let (first, count) = (f64::from(rows.start), rows.end - rows.start);
    let source = TypedImageRef::<U8x3>::from_buffer(width, height, image.pixels()).map_err(failed)?;
    let mut narrow = TypedImage::<U8x3>::new(spec.crop_width, count);
    resize(&source, &mut narrow, (left, first, crop_width, f64::from(count)))?;
    let mut crop = TypedImage::<U8x3>::new(spec.crop_width, spec.crop_height);
    let crop_box = (0.0, top - first, f64::from(spec.crop_width), crop_height);
    resize(&narrow, &mut crop, crop_box)?;
    Ok(colours(&crop))
}

/// Cuts out `area` and resizes it to the network's input, as torchvision's `resized_crop` does: nothing around it is seen.
pub(crate) fn resized(image: &RgbImage, area: Area, spec: &PixelSpec) -> Result<Vec<Rgb>, ImageError> {
    spec.check()?;
    let Area {
        left,
        top,
        width,
        height,
    } = area;
    let source = TypedImageRef::<U8x3>::from_buffer(image.width(), image.height(), image.pixels());
    let source = source.map_err(failed)?;
    let source = TypedCroppedImage::from_ref(&source, left, top, width, height).map_err(failed)?;
    let mut narrow = TypedImage::<U8x3>::new(spec.crop_width, height);
    resize(
        &source,
        &mut narrow,
        (0.0, 0.0, f64::from(width), f64::from(height)),
    )?;
    let mut crop = TypedImage::<U8x3>::new(spec.crop_width, spec.crop_height);
    let whole = (0.0, 0.0, f64::from(spec.crop_width), f64::from(height));
    resize(&narrow, &mut crop, whole)?;
    Ok(colours(&crop))
}

/// Resizes a box of `source` (left, top, width, height) to `target`; a side that is as long already keeps its values.
fn resize(
    source: &impl ImageView<Pixel = U8x3>,
    target: &mut TypedImage<'_, U8x3>,
    (left, top, width, height): (f64, f64, f64, f64),
) -> Result<(), ImageError> {
    // Sums of fractions may miss the last pixel's end by a rounding.
    let width = width.min(f64::from(source.width()) - left);
    let height = height.min(f64::from(source.height()) - top);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .crop(left, top, width, height)
        .use_alpha(false);
    Resizer::new()
        .resize_typed(source, target, &options)
        .map_err(failed)
}

fn failed(reason: impl std::fmt::Display) -> ImageError {
    ImageError::Mismatch {
        expected: "an image that can be resized".to_owned(),
        actual: reason.to_string(),
    }
}

fn colours(image: &TypedImage<'_, U8x3>) -> Vec<Rgb> {
    image.pixels().iter().map(|pixel| pixel.0).collect()
}

/// `[h, w, 3]` to `[3, h, w]`.
pub(crate) fn to_planes(pixels: &[Rgb]) -> Vec<u8> {
    let mut planes = Vec::with_capacity(pixels.len() * 3);
    planes.extend(pixels.iter().map(|[red, _, _]| *red));
    planes.extend(pixels.iter().map(|[_, green, _]| *green));
    planes.extend(pixels.iter().map(|[_, _, blue]| *blue));
    planes
}
