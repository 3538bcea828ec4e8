use crate::claim::ParsedImage;
use crate::jpeg_header::{ColorCoding, JpegHeader};
use crate::{DecodeLimits, ImageError, ImageFormat};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::{ImageInfo, JpegDecoder, SampleRatios};

/// Maximum number of scans per image. Encoders from libjpeg write 10. Each scan costs a pass over the image,
/// even if the scan is short, so large images are limited to fewer scans ([`DecodeLimits::max_work`]).
const MOST_SCANS: usize = 100;

/// Maximum bytes of tables. Each scan of libjpeg has up to 280 bytes, and decoding a table of 20 bytes costs as
/// much as a thousand pixels.
const MOST_TABLE_BYTES: usize = 256 << 10;

/// Work per byte of the file, for Huffman decoding.
const BYTE_WORK: u64 = 5;

/// Parses a JPEG's headers. Decoding follows libjpeg-turbo and Pillow.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<ParsedImage<'a>, ImageError> {
    let header = JpegHeader::read(bytes);
    if header.components.is_empty() {
        return Err(truncated_or(&header, bytes, "the frame header is missing"));
    }
    if header.scan_start.is_none() {
        return Err(truncated_or(&header, bytes, "the image data is missing"));
    }
    if !header.complete && !header.is_single_scan() {
        return Err(truncated(bytes, "the end-of-image marker is missing"));
    }
    if let Some(offset) = header.stray_restart.filter(|_| !header.is_single_scan()) {
        return Err(stray_restart(offset));
    }
    let mut decoder = decoder(&header.essential);
    decoder.decode_headers().map_err(explain)?;
    let info = decoder
        .info()
        .ok_or_else(|| malformed("the frame header is missing"))?;
    let width = u32::from(info.width);
    let height = u32::from(info.height);
    limits.check(ImageFormat::Jpeg, width, height)?;
    let coding = header.color_coding().ok_or_else(|| {
        let feature = format!("{} color components", header.components.len());
        ImageError::unsupported(ImageFormat::Jpeg, feature)
    })?;
    if header.components.len() != usize::from(info.components) {
        return Err(malformed("the frame headers are contradictory"));
    }
    if header.scans > MOST_SCANS {
        let feature = format!("{} scans", header.scans);
        return Err(ImageError::unsupported(ImageFormat::Jpeg, feature));
    }
    if header.table_bytes > MOST_TABLE_BYTES {
        return Err(malformed(&format!(
            "tables of {} bytes exceed the limit of {MOST_TABLE_BYTES}",
            header.table_bytes
        )));
    }
    Ok(ParsedImage {
        width,
        height,
        orientation: header.orientation(),
        memory_needed: header.decoder_input_size(bytes.len()) as u64 + memory_needed(&info, &header),
        work: u64::from(width) * u64::from(height) * header.scans as u64 + BYTE_WORK * bytes.len() as u64,
        slow_because: format!(" with {} scans", header.scans),
        decode: Box::new(move || {
            let samples = decode_samples(&header.decoder_input(bytes), coding);
            let samples = samples.map_err(|error| damaged(error, &header, bytes));
            Ok(to_rgb(samples?, coding))
        }),
    })
}

/// Maximum bytes allocated by the decoder (`mcu.rs` and `mcu_prog.rs` in zune-jpeg) and by the conversion to
/// RGB. This includes the samples, the RGB pixels, the current rows of blocks, and 16-bit coefficients of the
/// whole image if components are split across scans.
fn memory_needed(info: &ImageInfo, header: &JpegHeader<'_>) -> u64 {
    let (across, down) = match info.sample_ratio {
        SampleRatios::None => (1, 1),
        SampleRatios::H => (2, 1),
        SampleRatios::V => (1, 2),
        SampleRatios::HV => (2, 2),
        SampleRatios::Generic(across, down) => (across as u64, down as u64),
    };
    let width = u64::from(info.width);
    let height = u64::from(info.height);
    let components = u64::from(info.components);
    let padded_width = width.next_multiple_of(8 * across);
    let padded_height = height.next_multiple_of(8 * down);
    let coefficients = if info.sof.is_sequential_dct() && header.is_single_scan() {
        0
    } else {
        2 * components * padded_width * padded_height
    };
    // Buffers per block: coefficients, adjacent rows and upsampled samples.
    let stripes = padded_width * (64 * down * components + 16);
    // Images with three components are converted in place.
    let rgb = if components == 3 { 0 } else { 3 };
    width * height * (components + rgb) + coefficients + stripes
}

fn malformed(reason: &str) -> ImageError {
    ImageError::malformed(ImageFormat::Jpeg, reason)
}

fn truncated_or(header: &JpegHeader<'_>, bytes: &[u8], reason: &str) -> ImageError {
    if header.complete {
        return malformed(reason);
    }
    truncated(bytes, reason)
}

fn truncated(bytes: &[u8], reason: &str) -> ImageError {
    ImageError::truncated(ImageFormat::Jpeg, format!("{reason} after {} bytes", bytes.len()))
}

fn stray_restart(offset: usize) -> ImageError {
    malformed(&format!(
        "the image data is damaged: restart marker out of place at byte {offset}"
    ))
}

/// Describes a failure to decode the image data.
fn damaged(error: ImageError, header: &JpegHeader<'_>, bytes: &[u8]) -> ImageError {
    match (error, header.stray_restart) {
        (ImageError::Malformed { .. }, Some(offset)) => stray_restart(offset),
        (ImageError::Malformed { .. }, None) if header.data_end == bytes.len() => {
            truncated(bytes, "the rest of the image data is missing")
        }
        (ImageError::Malformed { reason, .. }, None) => malformed(&format!(
            "the image data up to byte {} is damaged: {reason}",
            header.data_end
        )),
        (other, _) => other,
    }
}

/// Decoder output, either RGB or the coded components.
struct Samples {
    values: Vec<u8>,
    converted: bool,
}

fn decoder(bytes: &[u8]) -> JpegDecoder<ZCursor<&[u8]>> {
    let side = usize::from(u16::MAX);
    let options = DecoderOptions::default()
        .set_max_width(side)
        .set_max_height(side)
        .jpeg_set_max_scans(MOST_SCANS)
        .set_strict_mode(false);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

fn decode_samples(bytes: &[u8], coding: ColorCoding) -> Result<Samples, ImageError> {
    let mut decoder = decoder(bytes);
    decoder.decode_headers().map_err(explain)?;
    let coded = decoder.input_colorspace().unwrap_or(ColorSpace::Unknown);
    let convert = coding == ColorCoding::YCbCr && coded == ColorSpace::YCbCr;
    let wanted = if convert { ColorSpace::RGB } else { coded };
    let options = decoder.options().jpeg_set_out_colorspace(wanted);
    // By default, the decoder paints undecodable parts gray.
    decoder.set_options(options.set_strict_mode(true));
    let values = decoder.decode().map_err(explain)?;
    Ok(Samples {
        values,
        converted: convert,
    })
}

fn explain(error: DecodeErrors) -> ImageError {
    match error {
        DecodeErrors::Unsupported(scheme) => {
            ImageError::unsupported(ImageFormat::Jpeg, format!("{scheme:?}"))
        }
        other => malformed(&other.to_string()),
    }
}

fn to_rgb(samples: Samples, coding: ColorCoding) -> Vec<u8> {
    let Samples {
        mut values,
        converted,
    } = samples;
    match coding {
        ColorCoding::Gray => values.iter().flat_map(|&gray| [gray; 3]).collect(),
        ColorCoding::Rgb => values,
        ColorCoding::YCbCr if converted => values,
        ColorCoding::YCbCr => {
            for pixel in values.as_chunks_mut::<3>().0 {
                *pixel = ycbcr_to_rgb(*pixel);
            }
            values
        }
        ColorCoding::Cmyk => values
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|&[c, m, y, k]| inverted_cmyk_to_rgb([c, m, y], k))
            .collect(),
        ColorCoding::Ycck => {
            let pixels = values.as_chunks::<4>().0.iter();
            // YCCK to CMYK as in libjpeg, by inverting the RGB of YCbCr.
            pixels
                .flat_map(|&[y, cb, cr, k]| {
                    inverted_cmyk_to_rgb(ycbcr_to_rgb([y, cb, cr]).map(|v| 255 - v), k)
                })
                .collect()
        }
    }
}

/// JFIF conversion in libjpeg's fixed-point arithmetic (`jdcolor.c`, 16 fraction bits).
fn ycbcr_to_rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let y = i32::from(y);
    let cb = i32::from(cb) - 128;
    let cr = i32::from(cr) - 128;
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|value| u8::try_from(value.clamp(0, 255)).unwrap_or_default())
}

/// Converts like Pillow, which assumes that CMYK JPEGs are inverted. Pillow inverts them back, then scales
/// `255 - k` by each ink (`cmyk2rgb` in `Convert.c`).
fn inverted_cmyk_to_rgb(inks: [u8; 3], key: u8) -> [u8; 3] {
    let paper = i32::from(key);
    inks.map(|ink| {
        let product = i32::from(255 - ink) * paper + 128;
        let scaled = ((product >> 8) + product) >> 8;
        u8::try_from((paper - scaled).clamp(0, 255)).unwrap_or_default()
    })
}
