use crate::{ImageError, ImageFormat};

/// What one image may claim before any of it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Most pixels (width times height).
    pub max_pixels: u64,
    /// Most bytes that decoding and resizing it may take at any time.
    pub max_bytes: u64,
}

impl DecodeLimits {
    /// 64 Mi pixels, enough for the 61 megapixels of today's full-frame cameras. A file of a few hundred bytes may claim this many.
    const DEFAULT_MAX_PIXELS: u64 = 64 << 20;

    /// 1 GiB: of the most pixels an ordinary JPEG takes 384 MiB, one with its coefficients 768 MiB, a WebP with alpha 832 MiB. Half would
    /// refuse full-frame cameras' progressive JPEGs; what takes more is no photo.
    const DEFAULT_MAX_BYTES: u64 = 1 << 30;

    /// Refuses an image that claims too much; `Ok` carries the bytes its RGB pixels take.
    pub(crate) fn check(&self, format: ImageFormat, width: u32, height: u32) -> Result<usize, ImageError> {
        let pixels = u64::from(width) * u64::from(height);
        let too_many = ImageError::TooManyPixels {
            format,
            width,
            height,
            limit: self.max_pixels,
        };
        if pixels > self.max_pixels {
            return Err(too_many);
        }
        if pixels == 0 {
            let reason = format!("it claims {width}x{height} pixels");
            return Err(ImageError::malformed(format, reason));
        }
        usize::try_from(pixels)
            .ok()
            .and_then(|pixels| pixels.checked_mul(3))
            .ok_or(too_many)
    }

    /// Refuses an image that takes more bytes than one may.
    pub(crate) fn check_bytes(&self, format: ImageFormat, needed: u64) -> Result<(), ImageError> {
        if needed > self.max_bytes {
            return Err(ImageError::TooMuchMemory {
                format,
                needed,
                limit: self.max_bytes,
            });
        }
        Ok(())
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            max_pixels: Self::DEFAULT_MAX_PIXELS,
            max_bytes: Self::DEFAULT_MAX_BYTES,
        }
    }
}

/// What one batch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most bytes of the batch tensor.
    pub max_bytes: usize,
}

impl BatchLimits {
    /// 1 GiB: 1,783 samples of 224x224 in `f32`, several times any useful batch. It stops a request from asking for a tensor that
    /// the machine has no memory for; budgets between tenants are the host's business.
    const DEFAULT_MAX_BYTES: usize = 1 << 30;
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            max_bytes: Self::DEFAULT_MAX_BYTES,
        }
    }
}
