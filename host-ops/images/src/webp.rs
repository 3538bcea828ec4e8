use crate::claim::ParsedImage;
use crate::orientation::Orientation;
use crate::webp_lossless::{Codes, alpha_codes, codes};
use crate::{DecodeLimits, ImageError, ImageFormat};
use image_webp::{DecodingError, WebPDecoder};
use std::io::{Cursor, ErrorKind};

/// Parses a WebP's headers. Decoding follows Pillow. Only the first frame is decoded, and alpha is dropped.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<ParsedImage<'a>, ImageError> {
    check_length(bytes)?;
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(explain)?;
    let (width, height) = decoder.dimensions();
    limits.check(ImageFormat::WebP, width, height)?;
    // The decoder allocates lossy frames by the size in the frame header before comparing it with the canvas,
    // so this size is checked as well.
    let file = bytes.get(12..).unwrap_or_default();
    for (width, height) in lossy_frames(file) {
        limits.check(ImageFormat::WebP, width, height)?;
    }
    let failed = ImageError::DecoderFailed {
        format: ImageFormat::WebP,
    };
    let size = decoder.output_buffer_size().ok_or(failed)?;
    Ok(ParsedImage {
        width,
        height,
        orientation: orientation(file),
        memory_needed: memory_needed(file, width, height, decoder.is_animated()),
        work: work(file, width, height),
        slow_because: format!(" in {} bytes", file.len()),
        decode: Box::new(move || {
            let mut pixels = vec![0; size];
            decoder.read_image(&mut pixels).map_err(explain)?;
            Ok(if decoder.has_alpha() {
                drop_alpha(pixels)
            } else {
                pixels
            })
        }),
    })
}

/// Work of decoding in pixels of a JPEG: 4 for a pixel, and 40 for a byte of the largest lossy frame, because its
/// arithmetic code is decoded bit by bit.
fn work(file: &[u8], width: u32, height: u32) -> u64 {
    let frames = frame_chunks(file).filter(|(name, _)| name == b"VP8 ");
    let lossy = frames.map(|(_, body)| body.len()).max().unwrap_or_default();
    4 * u64::from(width) * u64::from(height) + 40 * lossy as u64
}

fn orientation(file: &[u8]) -> Orientation {
    Orientation::from_metadata(chunk(file, b"EXIF"), chunk(file, b"XMP "))
}

/// Maximum bytes allocated while decoding.
///
/// - The result needs 4 bytes per pixel. An animation needs 8 additional bytes for canvas and frame.
/// - Lossy frames need 2 bytes per pixel.
/// - Alpha needs 6 bytes per pixel (5 as a lossless image, 1 for block transforms).
/// - Tables of lossless data depend on the data ([`lossless_tables`]).
/// - Buffers for the data need up to twice the length of the file. A truncated partition adds up to 16 MiB,
///   because its length has 24 bits (`init_partitions` in `vp8.rs` of image-webp).
fn memory_needed(file: &[u8], width: u32, height: u32, animated: bool) -> u64 {
    let frames = lossy_frames(file).map(|(width, height)| padded(width, height));
    let pixels = frames.max().unwrap_or_default().max(padded(width, height));
    let canvas = if animated { 8 } else { 0 };
    let lossless = lossless_tables(file, width, height);
    let alpha = if lossless.is_some() { 6 } else { 0 };
    pixels * (canvas + 4 + 2 + alpha) + lossless.unwrap_or_default() + 2 * file.len() as u64 + (17 << 20)
}

/// Returns the bytes of lossless tables. The decoder may select the first image or alpha chunk of the file or
/// the first frame, so this is the maximum of these. `None` if the file contains no lossless data.
fn lossless_tables(file: &[u8], width: u32, height: u32) -> Option<u64> {
    let image = chunk(file, b"VP8L").map(|body| tables(body, codes(body)));
    let alpha = chunk(file, b"ALPH").map(|body| tables(body, alpha_codes(body, width, height)));
    let frame = chunk(file, b"ANMF").and_then(|body| body.get(FRAME_HEADER..));
    let frame = chunks(frame.unwrap_or_default())
        .take(2)
        .filter_map(|(name, body)| match &name {
            b"VP8L" => Some(tables(body, codes(body))),
            // The size of the frame is unknown here. Such files are rare, so use the upper bound.
            b"ALPH" => Some(tables(body, None)),
            _ => None,
        });
    frame.chain(image).chain(alpha).max()
}

/// Returns the bytes of the tables of lossless data. Each code of a group needs 4 KiB plus a vector that
/// grows by doubling, and each symbol of a long code needs two nodes. If the data is invalid before the
/// codes, this is an upper bound by length.
fn tables(data: &[u8], codes: Option<Codes>) -> u64 {
    /// A table needs at least 13 bytes of data, and three bits describe up to six symbols.
    const OF_A_BYTE: u64 = 512;
    const GROUPS: u64 = 1 << 16;
    const GROUP: u64 = 5 * (4096 + 200);
    const SYMBOL: u64 = 32;
    let described = data.len() as u64 * OF_A_BYTE;
    codes.map_or(described.min(GROUPS * GROUP), |codes| {
        codes.groups * GROUP + described.min(codes.groups * codes.symbols * SYMBOL)
    })
}

/// Returns the number of pixels after padding both sides to macroblocks.
fn padded(width: u32, height: u32) -> u64 {
    u64::from(width).next_multiple_of(16) * u64::from(height).next_multiple_of(16)
}

/// Bytes of a frame header in an animation.
const FRAME_HEADER: usize = 16;

/// Checks that the data has the declared length. Otherwise the decoder would treat missing data as zeros.
fn check_length(bytes: &[u8]) -> Result<(), ImageError> {
    let size = bytes.get(4..).and_then(|rest| rest.first_chunk());
    let expected = size.map_or(12, |&size| u64::from(u32::from_le_bytes(size)) + 8);
    if (bytes.len() as u64) < expected {
        let what = format!("{} of {expected} bytes", bytes.len());
        return Err(ImageError::truncated(ImageFormat::WebP, what));
    }
    Ok(())
}

/// Returns the declared sizes of lossy frames in pixels, including frames of an animation.
fn lossy_frames(file: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    frame_chunks(file).filter_map(|(name, body)| match (&name, body) {
        (b"VP8 ", [_, _, _, _, _, _, w0, w1, h0, h1, ..]) => {
            let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
            Some((side(*w0, *w1), side(*h0, *h1)))
        }
        _ => None,
    })
}

/// Returns the body of the first chunk with a name.
fn chunk<'a>(file: &'a [u8], wanted: &[u8; 4]) -> Option<&'a [u8]> {
    let mut named = chunks(file).filter(|(name, _)| name == wanted);
    named.next().map(|(_, body)| body)
}

/// Returns the chunks of a file. Animation frames are replaced by their chunks.
fn frame_chunks(file: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    chunks(file).flat_map(|(name, body)| match &name {
        b"ANMF" => chunks(body.get(FRAME_HEADER..).unwrap_or_default()).collect(),
        _ => vec![(name, body)],
    })
}

/// Returns name and body of each RIFF chunk. The last body is truncated if the data ends early.
fn chunks(mut rest: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (size, after) = after.split_first_chunk::<4>()?;
        let size = u32::from_le_bytes(*size) as usize;
        rest = after.get(size.saturating_add(size % 2)..).unwrap_or_default();
        Some((*name, after.get(..size).unwrap_or(after)))
    })
}

/// Converts `[h, w, 4]` to `[h, w, 3]` in place.
fn drop_alpha(mut pixels: Vec<u8>) -> Vec<u8> {
    let count = pixels.len() / 4;
    for pixel in 0..count {
        pixels.copy_within(pixel * 4..pixel * 4 + 3, pixel * 3);
    }
    pixels.truncate(count * 3);
    pixels
}

fn explain(error: DecodingError) -> ImageError {
    let format = ImageFormat::WebP;
    match error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            ImageError::truncated(format, "the data ends inside the image")
        }
        DecodingError::UnsupportedFeature(feature) => ImageError::unsupported(format, feature),
        other => ImageError::malformed(format, other.to_string()),
    }
}
