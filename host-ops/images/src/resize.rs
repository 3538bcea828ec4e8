use crate::augment::Rgb;
use crate::placement::{Order, Placement, support};
use crate::{Area, DecodeLimits, Draw, ImageError, RgbImage, Undecoded, decode};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{CropBox, FilterType, ImageView, ResizeAlg, ResizeOptions, Resizer};
use frostline_tensor::{ChannelOrder, Interpolation, PixelSpec, View};
use std::ops::Range;

/// Decodes an object and returns the crop `spec` describes as `u8[3, crop_height, crop_width]`, before normalization.
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

/// The most bytes that [`pixels_of`] holds: the image, what lies between the two steps, the crop up to three times, and for every pixel of a row and a
/// column of the source its weights (`precompute_coefficients` of fast_image_resize).
pub(crate) fn resize_takes(image: &Undecoded<'_>, spec: &PixelSpec, augmented: bool) -> u64 {
    let (width, height) = (image.width(), image.height());
    let (rows, columns) = if augmented {
        // Any part of it may be drawn.
        (height, width)
    } else {
        let Placement { down, across, .. } = Placement::new(spec, (height, width));
        let count = |pixels: Range<u32>| pixels.end - pixels.start;
        (count(down.touched()), count(across.touched()))
    };
    let (crop_width, crop_height) = (u64::from(spec.crop_width), u64::from(spec.crop_height));
    let sides = u64::from(width) + u64::from(height) + 4 * (crop_width + crop_height);
    let weights = 32 * u64::from(support(spec.interpolation)) * sides;
    let between = (crop_width * u64::from(rows)).max(crop_height * u64::from(columns));
    let pixels = u64::from(width) * u64::from(height);
    3 * (pixels + between + 3 * crop_width * crop_height) + weights
}

/// Resizes an image and crops its center as `spec` says, to `u8[3, crop_height, crop_width]`.
///
/// First the width, then the height, or the other way round, with bytes between, as Pillow does: of bilinear values one in some four hundred
/// differs from Pillow's, by one. Only pixels of the crop are computed, so an image of extreme proportions costs no more than others.
///
/// # Errors
/// [`ImageError::Spec`] for a spec that cannot be carried out.
pub fn resize_and_crop(image: &RgbImage, spec: &PixelSpec) -> Result<Vec<u8>, ImageError> {
    Ok(to_planes(&center(image, spec)?, spec.channels))
}

/// [`resize_and_crop`], pixel by pixel.
pub(crate) fn center(image: &RgbImage, spec: &PixelSpec) -> Result<Vec<Rgb>, ImageError> {
    spec.check()?;
    let placement = Placement::new(spec, (image.height(), image.width()));
    let covered = match filter(spec.interpolation) {
        Some(filter) => filtered(image, placement, filter)?,
        None => nearest(image, placement),
    };
    Ok(padded(covered, placement, spec))
}

/// What the image covers of the crop, computed by a filter.
fn filtered(image: &RgbImage, placement: Placement, filter: FilterType) -> Result<Vec<Rgb>, ImageError> {
    let Placement { down, across, .. } = placement;
    let (left, width) = across.source_span();
    let (top, height) = down.source_span();
    let (mut first, mut second) = (
        CropBox {
            left,
            top,
            width,
            height,
        },
        all_of(across.covered, down.covered),
    );
    let middle = match placement.order {
        Order::WidthFirst => {
            let rows = down.touched();
            (first.top, first.height) = (rows.start.into(), (rows.end - rows.start).into());
            (second.top, second.height) = (top - first.top, height);
            (across.covered, rows.end - rows.start)
        }
        Order::HeightFirst => {
            let columns = across.touched();
            (first.left, first.width) = (columns.start.into(), (columns.end - columns.start).into());
            (second.left, second.width) = (left - first.left, width);
            (columns.end - columns.start, down.covered)
        }
    };
    let source = TypedImageRef::from_buffer(image.width(), image.height(), image.pixels());
    let source = whole(source.map_err(failed)?)?;
    in_two_steps(
        &source,
        first,
        middle,
        second,
        (across.covered, down.covered),
        filter,
    )
}

/// Resizes a part of `source` to an image of the sides `middle`, and a part of that to one of the sides `last`.
fn in_two_steps(
    source: &Source<'_>,
    first: CropBox,
    middle: (u32, u32),
    second: CropBox,
    last: (u32, u32),
    filter: FilterType,
) -> Result<Vec<Rgb>, ImageError> {
    let mut narrow = TypedImage::new(middle.0, middle.1);
    resize(source, &mut narrow, first, filter)?;
    let mut crop = TypedImage::new(last.0, last.1);
    resize(&whole(lent(&narrow)?)?, &mut crop, second, filter)?;
    Ok(colors(&crop))
}

/// The same from the nearest pixels.
fn nearest(image: &RgbImage, Placement { down, across, .. }: Placement) -> Vec<Rgb> {
    let pixels = image.pixels().as_chunks::<3>().0;
    let columns: Vec<usize> = across.nearest().collect();
    let rows = down.nearest().map(|row| row * image.width() as usize);
    rows.flat_map(|row| columns.iter().map(move |column| row + column))
        .map(|pixel| pixels.get(pixel).copied().unwrap_or_default())
        .collect()
}

/// The whole crop: what the image does not cover is filled.
fn padded(covered: Vec<Rgb>, placement: Placement, spec: &PixelSpec) -> Vec<Rgb> {
    let Placement { down, across, .. } = placement;
    let (width, height) = (spec.crop_width as usize, spec.crop_height as usize);
    if covered.len() == width * height {
        return covered;
    }
    let mut crop = vec![spec.fill; width * height];
    let rows = crop.chunks_exact_mut(width.max(1)).skip(down.before as usize);
    for (row, covered) in rows.zip(covered.chunks_exact(across.covered.max(1) as usize)) {
        let part = row.iter_mut().skip(across.before as usize);
        part.zip(covered).for_each(|(pixel, covered)| *pixel = *covered);
    }
    crop
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
    let Some(filter) = filter(spec.interpolation) else {
        return nearest_of(&source, spec);
    };
    let (crop_width, crop_height) = (spec.crop_width, spec.crop_height);
    let order = Order::new((height, width), (crop_height.into(), crop_width.into()));
    let middle = match order {
        Order::WidthFirst => (crop_width, height),
        Order::HeightFirst => (width, crop_height),
    };
    let last = (crop_width, crop_height);
    in_two_steps(
        &source,
        all_of(width, height),
        middle,
        all_of(middle.0, middle.1),
        last,
        filter,
    )
}

/// Without a filter, rows and columns are chosen at once.
fn nearest_of(source: &Source<'_>, spec: &PixelSpec) -> Result<Vec<Rgb>, ImageError> {
    let (width, height) = (source.width(), source.height());
    let mut crop = TypedImage::new(spec.crop_width, spec.crop_height);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Nearest)
        .crop(0.0, 0.0, f64::from(width), f64::from(height))
        .use_alpha(false);
    Resizer::new()
        .resize_typed(source, &mut crop, &options)
        .map_err(failed)?;
    Ok(colors(&crop))
}

/// Pillow's; none for the nearest pixel.
fn filter(interpolation: Interpolation) -> Option<FilterType> {
    match interpolation {
        Interpolation::Nearest => None,
        Interpolation::Bilinear => Some(FilterType::Bilinear),
        Interpolation::Bicubic => Some(FilterType::CatmullRom),
        Interpolation::Lanczos => Some(FilterType::Lanczos3),
    }
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
fn resize(
    source: &Source<'_>,
    target: &mut TypedImage<'_, U8x3>,
    part: CropBox,
    filter: FilterType,
) -> Result<(), ImageError> {
    // Sums of fractions may miss the last pixel's end by a rounding.
    let width = part.width.min(f64::from(source.width()) - part.left);
    let height = part.height.min(f64::from(source.height()) - part.top);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(filter))
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

fn colors(image: &TypedImage<'_, U8x3>) -> Vec<Rgb> {
    image.pixels().iter().map(|pixel| pixel.0).collect()
}

/// `[h, w, 3]` to `[3, h, w]`, in the order of a network's channels.
pub(crate) fn to_planes(pixels: &[Rgb], channels: ChannelOrder) -> Vec<u8> {
    let mut planes = Vec::with_capacity(pixels.len() * 3);
    let order = match channels {
        ChannelOrder::Rgb => [0, 1, 2],
        ChannelOrder::Bgr => [2, 1, 0],
    };
    for channel in order {
        planes.extend(pixels.iter().filter_map(|pixel| pixel.get::<usize>(channel)));
    }
    planes
}
