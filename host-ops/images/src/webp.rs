use crate::claim::Claim;
use crate::orientation::Orientation;
use crate::webp_lossless::{Codes, alpha_codes, codes};
use crate::{DecodeLimits, ImageError, ImageFormat};
use image_webp::{DecodingError, WebPDecoder};
use std::io::{Cursor, ErrorKind};

/// Reads a WebP's headers; decodes it, of an animation the first frame, as Pillow does; alpha is dropped.
pub(crate) fn read<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<Claim<'a>, ImageError> {
    check_length(bytes)?;
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(explain)?;
    let (width, height) = decoder.dimensions();
    limits.check(ImageFormat::WebP, width, height)?;
    // The decoder makes room for a lossy frame by the frame's own header before it compares that with the canvas.
    let file = bytes.get(12..).unwrap_or_default();
    for (width, height) in lossy_frames(file) {
        limits.check(ImageFormat::WebP, width, height)?;
    }
    let failed = ImageError::DecoderFailed {
        format: ImageFormat::WebP,
    };
    let size = decoder.output_buffer_size().ok_or(failed)?;
    Ok(Claim {
        width,
        height,
        orientation: orientation(file),
        takes: takes(file, width, height, decoder.is_animated()),
        pixels: Box::new(move || {
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

fn orientation(file: &[u8]) -> Orientation {
    let body = |wanted: &[u8; 4]| {
        chunks(file)
            .find(|(name, _)| name == wanted)
            .map(|(_, body)| body)
    };
    Orientation::from_metadata(body(b"EXIF"), body(b"XMP "))
}

/// What the decoder allocates of each pixel: four bytes of the result, of an animation's canvas and frame as well; of a lossy frame
/// two; of its alpha as much as of a lossless image, five, and one for what is transformed by blocks. Beside the pixels: the tables of lossless
/// data, whose number the data says, the data once more, and a part of it that is not there, of 24 bits of length (`init_partitions` in image-webp's `vp8.rs`).
fn takes(file: &[u8], width: u32, height: u32, animated: bool) -> u64 {
    let frames = lossy_frames(file).map(|(width, height)| padded(width, height));
    let pixels = frames.max().unwrap_or_default().max(padded(width, height));
    let canvas = if animated { 8 } else { 0 };
    let lossless = lossless_tables(file, width, height);
    let alpha = if lossless.is_some() { 6 } else { 0 };
    pixels * (canvas + 4 + 2 + alpha) + lossless.unwrap_or_default() + 2 * file.len() as u64 + (17 << 20)
}

/// Bytes of the tables of what the decoder may choose: the first image or alpha among the chunks, or among those of the first frame.
fn lossless_tables(file: &[u8], width: u32, height: u32) -> Option<u64> {
    let first = |wanted: &[u8; 4]| chunks(file).find(|(name, _)| name == wanted);
    let image = first(b"VP8L").map(|(_, body)| tables(body, codes(body)));
    let alpha = first(b"ALPH").map(|(_, body)| tables(body, alpha_codes(body, width, height)));
    let frame = first(b"ANMF").and_then(|(_, body)| body.get(FRAME_HEADER..));
    let frame = chunks(frame.unwrap_or_default())
        .take(2)
        .filter_map(|(name, body)| match &name {
            b"VP8L" => Some(tables(body, codes(body))),
            // Its size is the frame's; it is rare, and so what it can describe at all is enough.
            b"ALPH" => Some(tables(body, None)),
            _ => None,
        });
    frame.chain(image).chain(alpha).max()
}

/// Bytes of the tables of lossless data: for each of a group's codes 4 KiB, and what holds it, which grows by doubling; and two nodes for each symbol
/// of a long code. Where the data is broken before its codes, as much as it can describe.
fn tables(data: &[u8], codes: Option<Codes>) -> u64 {
    /// 13 bytes are a table, and three bits six symbols.
    const OF_A_BYTE: u64 = 512;
    const GROUPS: u64 = 1 << 16;
    const GROUP: u64 = 5 * (4096 + 200);
    const SYMBOL: u64 = 32;
    let described = data.len() as u64 * OF_A_BYTE;
    codes.map_or(described.min(GROUPS * GROUP), |codes| {
        codes.groups * GROUP + described.min(codes.groups * codes.symbols * SYMBOL)
    })
}

/// Pixels of whole macroblocks.
fn padded(width: u32, height: u32) -> u64 {
    u64::from(width).next_multiple_of(16) * u64::from(height).next_multiple_of(16)
}

/// What stands before the chunks of an animation's frame.
const FRAME_HEADER: usize = 16;

/// Refuses data that is shorter than its header says: the decoder takes what is missing of a frame for zeros.
fn check_length(bytes: &[u8]) -> Result<(), ImageError> {
    let size = bytes.get(4..).and_then(|rest| rest.first_chunk());
    let expected = size.map_or(12, |&size| u64::from(u32::from_le_bytes(size)) + 8);
    if (bytes.len() as u64) < expected {
        let what = format!("{} bytes of {expected}", bytes.len());
        return Err(ImageError::truncated(ImageFormat::WebP, what));
    }
    Ok(())
}

/// What the lossy frames among a file's chunks claim to be, in pixels, those of an animation too.
fn lossy_frames(file: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    frame_chunks(file).filter_map(|(name, body)| match (&name, body) {
        (b"VP8 ", [_, _, _, _, _, _, w0, w1, h0, h1, ..]) => {
            let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
            Some((side(*w0, *w1), side(*h0, *h1)))
        }
        _ => None,
    })
}

/// A file's chunks, and those of an animation's frames in their place.
fn frame_chunks(file: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    chunks(file).flat_map(|(name, body)| match &name {
        b"ANMF" => chunks(body.get(FRAME_HEADER..).unwrap_or_default()).collect(),
        _ => vec![(name, body)],
    })
}

/// RIFF's chunks: name and body, as far as the data goes.
fn chunks(mut rest: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (size, after) = after.split_first_chunk::<4>()?;
        let size = u32::from_le_bytes(*size) as usize;
        rest = after.get(size.saturating_add(size % 2)..).unwrap_or_default();
        Some((*name, after.get(..size).unwrap_or(after)))
    })
}

/// `[h, w, 4]` to `[h, w, 3]`, in place.
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
        DecodingError::UnsupportedFeature(feature) => ImageError::Unsupported { format, feature },
        other => ImageError::malformed(format, other.to_string()),
    }
}
