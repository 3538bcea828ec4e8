use crate::{ImageError, ImageFormat};

/// An image as 8-bit RGB with three bytes per pixel, in rows from the top without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl RgbImage {
    /// Returns an image with the given pixels. Returns `None` if the length differs from `width * height * 3`
    /// or is zero.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Option<Self> {
        let expected = (width as usize).checked_mul(height as usize)?.checked_mul(3)?;
        (expected > 0 && expected == pixels.len()).then_some(Self {
            width,
            height,
            pixels,
        })
    }

    /// Returns an image from a decoder's output, or [`ImageError::DecoderFailed`] if its length is wrong.
    pub(crate) fn decoded(
        format: ImageFormat,
        width: u32,
        height: u32,
        pixels: Vec<u8>,
    ) -> Result<Self, ImageError> {
        Self::new(width, height, pixels).ok_or(ImageError::DecoderFailed { format })
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns the bytes, `[height, width, 3]`.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}
