use crate::{ImageError, ImageFormat};

/// An image as 8-bit RGB, rows from the top, three bytes a pixel without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl RgbImage {
    /// An image over `pixels`; `None` unless there are exactly `width * height * 3` bytes and at least one pixel.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Option<Self> {
        let expected = (width as usize).checked_mul(height as usize)?.checked_mul(3)?;
        (expected > 0 && expected == pixels.len()).then_some(Self {
            width,
            height,
            pixels,
        })
    }

    /// What a decoder made, which has to be [`Self::new`]'s.
    pub(crate) fn decoded(
        format: ImageFormat,
        width: u32,
        height: u32,
        pixels: Vec<u8>,
    ) -> Result<Self, ImageError> {
        Self::new(width, height, pixels).ok_or(ImageError::DecoderFailed { format })
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The bytes, `[height, width, 3]`.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}
