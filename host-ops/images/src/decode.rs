use crate::claim::ParsedImage;
use crate::format::recognize;
use crate::{DecodeLimits, ImageError, ImageFormat, RgbImage, bmp, gif, jpeg, png, webp};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An image with parsed headers. The memory needed for decoding is known, and no pixels have been allocated.
pub struct Undecoded<'a> {
    format: ImageFormat,
    claim: ParsedImage<'a>,
}

impl<'a> Undecoded<'a> {
    /// Parses the headers of a JPEG, PNG, WebP, GIF or BMP. The format is detected from the first bytes.
    ///
    /// # Errors
    /// Returns [`ImageError`] if the data is empty, unrecognized, truncated, malformed or unsupported, or
    /// exceeds `limits`.
    pub fn read(bytes: &'a [u8], limits: &DecodeLimits) -> Result<Self, ImageError> {
        let format = recognize(bytes)?;
        let claim = guarded(format, || match format {
            ImageFormat::Jpeg => jpeg::read(bytes, limits),
            ImageFormat::Png => png::read(bytes, limits),
            ImageFormat::WebP => webp::read(bytes, limits),
            ImageFormat::Gif => gif::read(bytes, limits),
            ImageFormat::Bmp => bmp::read(bytes, limits),
        })?;
        let image = Self { format, claim };
        limits.check_bytes(format, image.memory_needed())?;
        let claim = &image.claim;
        limits.check_work(format, claim.work, || {
            format!("{}x{} pixels{}", claim.width, claim.height, claim.slow_because)
        })?;
        Ok(image)
    }

    /// Returns the format of the data.
    pub fn format(&self) -> ImageFormat {
        self.format
    }

    /// Returns the width in pixels after applying the orientation.
    pub fn width(&self) -> u32 {
        self.sides().0
    }

    /// Returns the height in pixels after applying the orientation.
    pub fn height(&self) -> u32 {
        self.sides().1
    }

    fn sides(&self) -> (u32, u32) {
        let ParsedImage { width, height, .. } = self.claim;
        self.claim.orientation.sides((width, height))
    }

    /// Returns the maximum bytes that [`Self::decode`] allocates at any time. This includes the returned
    /// pixels, memory that depends on the format (coefficients of a progressive JPEG, alpha of a WebP) and
    /// memory for applying the orientation, but not the input `bytes`.
    pub fn memory_needed(&self) -> u64 {
        let rgb = 3 * u64::from(self.claim.width) * u64::from(self.claim.height);
        self.claim
            .memory_needed
            .max(self.claim.orientation.memory_needed(rgb))
    }

    /// Decodes the image. See [`decode`] for the result.
    ///
    /// # Errors
    /// Returns [`ImageError`] if the data is truncated, malformed or unsupported.
    pub fn decode(self) -> Result<RgbImage, ImageError> {
        let ParsedImage {
            width,
            height,
            orientation,
            decode,
            ..
        } = self.claim;
        let pixels = orientation.turn(guarded(self.format, decode)?, (width, height));
        let (width, height) = orientation.sides((width, height));
        RgbImage::decoded(self.format, width, height, pixels)
    }
}

/// Decodes a JPEG, PNG, WebP, GIF or BMP. The format is detected from the first bytes.
///
/// The result is equal to Pillow's `exif_transpose(Image.open(..)).convert("RGB")`. The orientation is
/// applied, only the first frame is decoded, alpha is dropped, palettes are applied, and CMYK is treated as
/// inverted, as written by Adobe. 16-bit samples are reduced to the high byte, while Pillow clips 16-bit
/// gray.
///
/// # Errors
/// Returns [`ImageError`] if the data is empty, unrecognized, truncated, malformed or unsupported, or exceeds
/// `limits` (detected before allocating memory).
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<RgbImage, ImageError> {
    Undecoded::read(bytes, limits)?.decode()
}

/// Converts panics to errors. Decoders are fuzzed upstream, but images are untrusted, and a panic must not
/// affect others.
fn guarded<T>(format: ImageFormat, work: impl FnOnce() -> Result<T, ImageError>) -> Result<T, ImageError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(ImageError::DecoderFailed { format }))
}
