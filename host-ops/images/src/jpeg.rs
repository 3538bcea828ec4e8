use crate::jpeg_header::{ColourCoding, JpegHeader};
use crate::{DecodeLimits, ImageError, ImageFormat, RgbImage};
use std::borrow::Cow;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

/// Decodes a JPEG as libjpeg-turbo and Pillow do.
pub(crate) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<RgbImage, ImageError> {
    let header = JpegHeader::read(bytes);
    if header.components.is_empty() {
        return Err(truncated_or(&header, bytes, "it has no frame header"));
    }
    let (width, height) = (u32::from(header.width), u32::from(header.height));
    limits.check(ImageFormat::Jpeg, width, height)?;
    let coding = header.colour_coding().ok_or_else(|| ImageError::Unsupported {
        format: ImageFormat::Jpeg,
        feature: format!("{} colour components", header.components.len()),
    })?;
    if !header.complete {
        return Err(truncated_or(&header, bytes, "it has no end"));
    }
    let samples = decode_samples(&without_adobe_markers(bytes, &header), coding)?;
    let pixels = to_rgb(samples, coding);
    RgbImage::decoded(ImageFormat::Jpeg, width, height, pixels)
}

fn truncated_or(header: &JpegHeader, bytes: &[u8], reason: &str) -> ImageError {
    if header.complete {
        return ImageError::malformed(ImageFormat::Jpeg, reason);
    }
    let what = format!("its {} bytes end before the end-of-image marker", bytes.len());
    ImageError::truncated(ImageFormat::Jpeg, what)
}

/// The same data with its Adobe segments made unknown to the decoder, so that it hands out components as they are coded
/// and [`ColourCoding`] alone decides what they mean.
fn without_adobe_markers<'a>(bytes: &'a [u8], header: &JpegHeader) -> Cow<'a, [u8]> {
    let mut bytes = Cow::Borrowed(bytes);
    for &position in &header.adobe_markers {
        if let Some(letter) = bytes.to_mut().get_mut(position) {
            *letter = b'_';
        }
    }
    bytes
}

/// What the decoder gave: RGB already, or the components as coded.
struct Samples {
    values: Vec<u8>,
    converted: bool,
}

fn decode_samples(bytes: &[u8], coding: ColourCoding) -> Result<Samples, ImageError> {
    let side = usize::from(u16::MAX);
    let options = DecoderOptions::default()
        .set_max_width(side)
        .set_max_height(side)
        .set_strict_mode(false);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(explain)?;
    let coded = decoder.input_colorspace().unwrap_or(ColorSpace::Unknown);
    let convert = coding == ColourCoding::YCbCr && coded == ColorSpace::YCbCr;
    let wanted = if convert { ColorSpace::RGB } else { coded };
    decoder.set_options(options.jpeg_set_out_colorspace(wanted));
    let values = decoder.decode().map_err(explain)?;
    Ok(Samples {
        values,
        converted: convert,
    })
}

fn explain(error: DecodeErrors) -> ImageError {
    let format = ImageFormat::Jpeg;
    match error {
        DecodeErrors::Unsupported(scheme) => ImageError::Unsupported {
            format,
            feature: format!("{scheme:?}"),
        },
        other => ImageError::malformed(format, other.to_string()),
    }
}

fn to_rgb(samples: Samples, coding: ColourCoding) -> Vec<u8> {
    let Samples {
        mut values,
        converted,
    } = samples;
    match coding {
        ColourCoding::Grey => values.iter().flat_map(|&grey| [grey; 3]).collect(),
        ColourCoding::Rgb => values,
        ColourCoding::YCbCr if converted => values,
        ColourCoding::YCbCr => {
            for pixel in values.as_chunks_mut::<3>().0 {
                *pixel = ycbcr_to_rgb(*pixel);
            }
            values
        }
        ColourCoding::Cmyk => values
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|&[c, m, y, k]| inverted_cmyk_to_rgb([c, m, y], k))
            .collect(),
        ColourCoding::Ycck => {
            let pixels = values.as_chunks::<4>().0.iter();
            // libjpeg's YCCK to CMYK: the RGB of YCbCr, inverted.
            pixels
                .flat_map(|&[y, cb, cr, k]| {
                    inverted_cmyk_to_rgb(ycbcr_to_rgb([y, cb, cr]).map(|v| 255 - v), k)
                })
                .collect()
        }
    }
}

/// JFIF's conversion in libjpeg's fixed point (`jdcolor.c`, 16 bits of fraction).
fn ycbcr_to_rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|value| u8::try_from(value.clamp(0, 255)).unwrap_or_default())
}

/// Pillow takes every CMYK JPEG as inverted, inverts it, and converts with `255 - k` scaled by each ink (`cmyk2rgb` in its
/// `Convert.c`).
fn inverted_cmyk_to_rgb(inks: [u8; 3], key: u8) -> [u8; 3] {
    let paper = i32::from(key);
    inks.map(|ink| {
        let product = i32::from(255 - ink) * paper + 128;
        let scaled = ((product >> 8) + product) >> 8;
        u8::try_from((paper - scaled).clamp(0, 255)).unwrap_or_default()
    })
}
