use crate::augment::Rgb;
use crate::{Area, DecodeLimits, Draw, ImageError, RgbImage, Undecoded, decode};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{CropBox, FilterType, ImageView, ResizeAlg, ResizeOptions, Resizer};
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
    let source = TypedImageRef::from_buffer(width, height, image.pixels()).map_err(failed)?;
    let mut narrow = TypedImage::new(spec.crop_width, count);
    let columns = CropBox {
        left,
        top: first,
        width: crop_width,
        height: f64::from(count),
    };
    resize(&whole(source)?, &mut narrow, columns)?;
    let mut crop = TypedImage::new(spec.crop_width, spec.crop_height);
    let rows = CropBox {
        left: 0.0,
        top: top - first,
        width: f64::from(spec.crop_width),
        height: crop_height,
    };
    resize(&whole(lent(&narrow)?)?, &mut crop, rows)?;
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
    let source = TypedImageRef::from_buffer(image.width(), image.height(), image.pixels());
    let source = Source::new(source.map_err(failed)?, left, top, width, height).map_err(failed)?;
    let mut narrow = TypedImage::new(spec.crop_width, height);
    resize(&source, &mut narrow, all_of(width, height))?;
    let mut crop = TypedImage::new(spec.crop_width, spec.crop_height);
    resize(
        &whole(lent(&narrow)?)?,
        &mut crop,
        all_of(spec.crop_width, height),
    )?;
    Ok(colours(&crop))
}

/// What is resized, of one type whatever it is: the resizer is compiled once for each, which took half of this crate's build.
type Source<'a> = TypedCroppedImage<'a, TypedImageRef<'a, U8x3>>;

fn whole(image: TypedImageRef<'_, U8x3>) -> Result<Source<'_>, ImageError> {
    let (width, height) = (image.width(), image.height());
    Source::new(image, 0, 0, width, height).map_err(failed)
}

fn lent<'a>(image: &'a TypedImage<'_, U8x3>) -> Result<TypedImageRef<'a, U8x3>, ImageError> {
    TypedImageRef::new(image.width(), image.height(), image.pixels()).map_err(failed)
}

fn all_of(width: u32, height: u32) -> CropBox {
    CropBox {
        left: 0.0,
        top: 0.0,
        width: f64::from(width),
        height: f64::from(height),
    }
}

/// Resizes a part of `source` to `target`; a side that is as long already keeps its values.
fn resize(source: &Source<'_>, target: &mut TypedImage<'_, U8x3>, part: CropBox) -> Result<(), ImageError> {
    // Sums of fractions may miss the last pixel's end by a rounding.
    let width = part.width.min(f64::from(source.width()) - part.left);
    let height = part.height.min(f64::from(source.height()) - part.top);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .crop(part.left, part.top, width, height)
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
