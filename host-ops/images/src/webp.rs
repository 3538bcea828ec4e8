use crate::{DecodeLimits, ImageError, ImageFormat, RgbImage};
use image_webp::{DecodingError, WebPDecoder};
use std::io::{Cursor, ErrorKind};

/// Decodes a WebP, of an animation the first frame, as Pillow does; alpha is dropped.
pub(crate) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<RgbImage, ImageError> {
    check_length(bytes)?;
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(explain)?;
    let (width, height) = decoder.dimensions();
    limits.check(ImageFormat::WebP, width, height)?;
    // The decoder makes room for a lossy frame by the frame's own header before it compares that with the canvas.
    for (width, height) in lossy_frames(bytes.get(12..).unwrap_or_default()) {
        limits.check(ImageFormat::WebP, width, height)?;
    }
    let failed = ImageError::DecoderFailed {
        format: ImageFormat::WebP,
    };
    let alpha = decoder.has_alpha();
    let mut pixels = vec![0; decoder.output_buffer_size().ok_or(failed)?];
    decoder.read_image(&mut pixels).map_err(explain)?;
    if alpha {
        pixels = drop_alpha(pixels);
    }
    RgbImage::decoded(ImageFormat::WebP, width, height, pixels)
}

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
    /// What stands before the chunks of an animation's frame.
    const FRAME_HEADER: usize = 16;
    chunks(file)
        .flat_map(|(name, body)| match &name {
            b"ANMF" => chunks(body.get(FRAME_HEADER..).unwrap_or_default()).collect(),
            _ => vec![(name, body)],
        })
        .filter_map(|(name, body)| match (&name, body) {
            (b"VP8 ", [_, _, _, _, _, _, w0, w1, h0, h1, ..]) => {
                let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
                Some((side(*w0, *w1), side(*h0, *h1)))
            }
            _ => None,
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
