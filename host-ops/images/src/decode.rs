use crate::claim::Claim;
use crate::format::recognize;
use crate::{DecodeLimits, ImageError, ImageFormat, RgbImage, bmp, gif, jpeg, png, webp};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An image whose headers have been read, by the decoder that will decode it: what that takes is known, and nothing of it has been
/// allocated.
pub struct Undecoded<'a> {
    format: ImageFormat,
    claim: Claim<'a>,
}

impl<'a> Undecoded<'a> {
    /// Reads the headers of a JPEG, PNG, WebP, GIF or BMP, recognized by its first bytes.
    ///
    /// # Errors
    /// [`ImageError`]: empty, unrecognized, truncated, malformed, unsupported, or over `limits`.
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
        limits.check_bytes(format, image.takes())?;
        Ok(image)
    }

    /// How it is encoded.
    pub fn format(&self) -> ImageFormat {
        self.format
    }

    /// Width in pixels, of the upright image.
    pub fn width(&self) -> u32 {
        self.sides().0
    }

    /// Height in pixels, of the upright image.
    pub fn height(&self) -> u32 {
        self.sides().1
    }

    fn sides(&self) -> (u32, u32) {
        let Claim { width, height, .. } = self.claim;
        self.claim.orientation.sides((width, height))
    }

    /// The most bytes that [`Self::decode`] holds at any time: the pixels it returns, and beside them what its format takes (a
    /// progressive JPEG's coefficients, an interlaced PNG's samples, a WebP's alpha), or while it turns them upright. `bytes` themselves are
    /// not among them.
    pub fn takes(&self) -> u64 {
        let rgb = 3 * u64::from(self.claim.width) * u64::from(self.claim.height);
        self.claim.takes.max(self.claim.orientation.takes(rgb))
    }

    /// The pixels, as [`decode`] gives them.
    ///
    /// # Errors
    /// [`ImageError`]: truncated, malformed, or unsupported.
    pub fn decode(self) -> Result<RgbImage, ImageError> {
        let Claim {
            width,
            height,
            orientation,
            pixels,
            ..
        } = self.claim;
        let pixels = orientation.turn(guarded(self.format, pixels)?, (width, height));
        let (width, height) = orientation.sides((width, height));
        RgbImage::decoded(self.format, width, height, pixels)
    }
}

/// Decodes a JPEG, PNG, WebP, GIF or BMP, recognized by its first bytes, to what Pillow's `exif_transpose(Image.open(..)).convert("RGB")`
/// gives: upright, the first frame, alpha is dropped, palettes are applied, 16 bits keep their high byte (Pillow clips 16-bit gray instead), CMYK is taken as inverted
/// (as Adobe writes it).
///
/// # Errors
/// [`ImageError`]: empty, unrecognized, truncated, malformed, unsupported, or over `limits` (before anything is allocated).
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<RgbImage, ImageError> {
    Undecoded::read(bytes, limits)?.decode()
}

/// The decoders are fuzzed by their authors, but an image is a stranger's; a panic in one must cost only that image.
fn guarded<T>(format: ImageFormat, work: impl FnOnce() -> Result<T, ImageError>) -> Result<T, ImageError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(ImageError::DecoderFailed { format }))
}
