use crate::claim::ParsedImage;
use crate::orientation::Orientation;
use crate::rgb::{palette_color, unpack};
use crate::{DecodeLimits, ImageError, ImageFormat};
use png::{
    ColorType, Decoder, DecodingError, Info, InterlaceInfo, Limits, Transformations, expand_interlaced_row,
};
use std::io::{Cursor, ErrorKind};

/// Maximum bytes of ancillary chunks. A camera's EXIF needs about 64 KiB, and larger chunks do not affect
/// pixels.
const CHUNKS: usize = 1 << 20;

/// Work of a row in addition to its pixels, for filters and decompression.
const ROW_WORK: u64 = 32;

/// Work of a pixel in an interlaced image. Pixels are copied one by one.
const INTERLACED_WORK: u64 = 5;

/// Parses a PNG's headers. The result of decoding is equal to Pillow's except for 16-bit gray. Alpha is
/// dropped. Gamma and color profiles are ignored.
///
/// 16-bit samples are reduced to the high byte, like torchvision's `to_dtype(scale=True)`. Pillow clips 16-bit
/// gray instead, turning X-rays white.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<ParsedImage<'a>, ImageError> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let info = decoder.read_header_info().map_err(explain)?;
    let (width, height) = info.size();
    let size = limits.check(ImageFormat::Png, width, height)?;
    let memory_needed = memory_needed(info, size);
    let work = work(info);
    let slow_because = if info.interlaced { ", interlaced" } else { "" };
    // Palettes are applied by [`pixels`]. The decoder panics if the length of a palette is not a multiple of 3.
    let transformations = if info.color_type == ColorType::Indexed {
        Transformations::IDENTITY
    } else {
        Transformations::normalize_to_color8()
    };
    decoder.set_transformations(transformations);
    // The decoder includes an output row in this limit.
    decoder.set_limits(Limits {
        bytes: OUTPUT_BYTES * width as usize + CHUNKS,
    });
    Ok(ParsedImage {
        width,
        height,
        orientation: orientation(bytes),
        memory_needed,
        work,
        slow_because: slow_because.to_owned(),
        decode: Box::new(move || pixels(decoder, size)),
    })
}

/// Reads the orientation from chunks before or after the image data. Compressed XMP is ignored.
fn orientation(bytes: &[u8]) -> Orientation {
    let mut exif = None;
    let mut xmp = None;
    for (name, body) in chunks(bytes.get(8..).unwrap_or_default()) {
        match &name {
            b"eXIf" => exif = Some(body),
            b"iTXt" if body.starts_with(b"XML:com.adobe.xmp\0") => xmp = Some(body),
            _ => {}
        }
    }
    Orientation::from_metadata(exif, xmp)
}

/// Returns name and body of each complete chunk.
fn chunks(mut rest: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (size, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let size = u32::from_be_bytes(*size) as usize;
        let body = after.get(..size)?;
        rest = after.get(size.saturating_add(4)..).unwrap_or_default();
        Some((*name, body))
    })
}

/// Maximum bytes of a pixel after the decoder's transformations, with alpha.
const OUTPUT_BYTES: usize = 4;

/// Maximum bytes allocated while decoding: the RGB pixels, about six rows that are being decompressed and
/// filtered, and several output rows. The buffer of the decompressor grows by doubling
/// (`unfiltering_buffer.rs` in png) up to the size of the image.
fn memory_needed(info: &Info<'_>, rgb: usize) -> u64 {
    let row = info.raw_row_length() as u64;
    let samples = row * u64::from(info.height);
    let at_work = 2 * samples.min(6 * row + (300 << 10)) + 4 * row;
    let output = 4 * OUTPUT_BYTES as u64 * u64::from(info.width);
    rgb as u64 + at_work + output + 2 * CHUNKS as u64
}

/// Work of decoding in pixels of a baseline JPEG. Rows have a fixed cost, so narrow images are expensive.
fn work(info: &Info<'_>) -> u64 {
    let pixels = u64::from(info.width) * u64::from(info.height);
    let pixel_work = if info.interlaced { INTERLACED_WORK } else { 2 };
    u64::from(rows(info)) * ROW_WORK + pixel_work * pixels
}

fn pixels(decoder: Decoder<Cursor<&[u8]>>, size: usize) -> Result<Vec<u8>, ImageError> {
    let mut reader = decoder.read_info().map_err(explain)?;
    let info = reader.info();
    let stride = 3 * info.width as usize;
    let bits = info.bit_depth as usize;
    let palette = info.palette.as_deref().unwrap_or_default().as_chunks().0.to_vec();
    if info.color_type == ColorType::Indexed && palette.is_empty() {
        return Err(ImageError::malformed(ImageFormat::Png, "the palette is missing"));
    }
    let rows = rows(info);
    let mut pixels = Vec::with_capacity(size);
    if info.interlaced {
        pixels.resize(size, 0);
    }
    let mut line = Vec::with_capacity(stride);
    let (color, _) = reader.output_color_type();
    for _ in 0..rows {
        let row = reader
            .next_interlaced_row()
            .map_err(explain)?
            .ok_or_else(failed)?;
        line.clear();
        match color {
            ColorType::Grayscale => each(row.data(), &mut line, |[gray]| [gray; 3]),
            ColorType::GrayscaleAlpha => each(row.data(), &mut line, |[gray, _]| [gray; 3]),
            ColorType::Rgb => line.extend_from_slice(row.data()),
            ColorType::Rgba => each(row.data(), &mut line, |[r, g, b, _]| [r, g, b]),
            ColorType::Indexed => {
                for index in unpack(row.data(), bits) {
                    line.extend_from_slice(&palette_color(&palette, index));
                }
                // The last byte of a row is padded.
                line.truncate(stride);
            }
        }
        match row.interlace() {
            InterlaceInfo::Null(_) => pixels.extend_from_slice(&line),
            InterlaceInfo::Adam7(position) => {
                expand_interlaced_row(&mut pixels, stride, &line, position, 24);
            }
        }
    }
    // Reads on to verify the checksums. Like in Pillow, these and the end marker may be missing.
    match reader.next_row() {
        Err(error) if !is_end(&error) => Err(explain(error)),
        _ => Ok(pixels),
    }
}

/// Returns the number of rows, which is the total of the seven passes if the image is interlaced.
fn rows(info: &Info<'_>) -> u32 {
    /// First column, first row, and distance between rows in each pass.
    const PASSES: [(u32, u32, u32); 7] = [
        (0, 0, 8),
        (4, 0, 8),
        (0, 4, 8),
        (2, 0, 4),
        (0, 2, 4),
        (1, 0, 2),
        (0, 1, 2),
    ];
    if !info.interlaced {
        return info.height;
    }
    let passes = PASSES.iter().filter(|(column, ..)| *column < info.width);
    passes
        .map(|(_, row, step)| info.height.saturating_sub(*row).div_ceil(*step))
        .sum()
}

fn failed() -> ImageError {
    ImageError::DecoderFailed {
        format: ImageFormat::Png,
    }
}

/// Returns true if the decoder has reached the end of the data.
fn is_end(error: &DecodingError) -> bool {
    matches!(error, DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof)
}

fn explain(error: DecodingError) -> ImageError {
    if is_end(&error) {
        return ImageError::truncated(ImageFormat::Png, "the data ends inside the image");
    }
    let reason = match error {
        DecodingError::IoError(error) => error.to_string(),
        DecodingError::Format(error) => error.to_string(),
        DecodingError::Parameter(error) => error.to_string(),
        DecodingError::LimitsExceeded => "a chunk exceeds the size limit".to_owned(),
    };
    ImageError::malformed(ImageFormat::Png, reason)
}

/// Appends pixels of `N` bytes as RGB.
fn each<const N: usize>(row: &[u8], line: &mut Vec<u8>, rgb: impl Fn([u8; N]) -> [u8; 3]) {
    line.extend(row.as_chunks::<N>().0.iter().flat_map(|pixel| rgb(*pixel)));
}
