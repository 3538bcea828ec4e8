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

/// Returns a palette color. Like in Pillow, undefined colors are black.
pub(crate) fn palette_color(palette: &[[u8; 3]], index: u8) -> [u8; 3] {
    palette.get(usize::from(index)).copied().unwrap_or_default()
}

/// Returns the palette indices of a row with up to 8 bits per pixel, starting with the most significant bits.
pub(crate) fn unpack(row: &[u8], bits: usize) -> impl Iterator<Item = u8> + Clone {
    let mask = u8::MAX >> (8 - bits);
    (0..row.len() * 8 / bits).map(move |pixel| {
        let byte = row.get(pixel * bits / 8).copied().unwrap_or_default();
        byte >> (8 - bits - pixel * bits % 8) & mask
    })
}
