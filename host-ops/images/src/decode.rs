use crate::{DecodeLimits, ImageError, ImageFormat, RgbImage, gif, jpeg, png, webp};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Decodes a JPEG, PNG, WebP or GIF, recognised by its first bytes, to what Pillow's `Image.open(..).convert("RGB")` gives: the
/// first frame, alpha is dropped, palettes are applied, 16-bit colour keeps its high byte, 16-bit grey is clipped to 255, CMYK is taken as inverted
/// (as Adobe writes it), EXIF orientation is ignored.
///
/// # Errors
/// [`ImageError`]: empty, unrecognised, truncated, malformed, unsupported, or over `limits` (before anything is allocated).
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<RgbImage, ImageError> {
    let format = recognise(bytes)?;
    // The decoders are fuzzed by their authors, but an image is a stranger's; a panic in one must cost only that image.
    let decoded = catch_unwind(AssertUnwindSafe(|| match format {
        ImageFormat::Jpeg => jpeg::decode(bytes, limits),
        ImageFormat::Png => png::decode(bytes, limits),
        ImageFormat::WebP => webp::decode(bytes, limits),
        ImageFormat::Gif => gif::decode(bytes, limits),
    }));
    decoded.unwrap_or(Err(ImageError::DecoderFailed { format }))
}

fn recognise(bytes: &[u8]) -> Result<ImageFormat, ImageError> {
    if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        Ok(ImageFormat::Jpeg)
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Ok(ImageFormat::Png)
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Ok(ImageFormat::WebP)
    } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        Ok(ImageFormat::Gif)
    } else if bytes.is_empty() {
        Err(ImageError::Empty)
    } else {
        let start = bytes.get(..bytes.len().min(8)).unwrap_or_default();
        let hex: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
        Err(ImageError::Unrecognised {
            start: format!("\"{}\" ({})", start.escape_ascii(), hex.join(" ")),
        })
    }
}
