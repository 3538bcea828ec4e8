use crate::{ImageError, ImageFormat};

/// Limits for the size that an image declares, checked before decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum number of pixels (width times height).
    pub max_pixels: u64,
    /// Maximum bytes allocated for decoding and resizing at any time.
    pub max_bytes: u64,
}

impl DecodeLimits {
    /// 64 Mi pixels, enough for the 61 megapixels of current full-frame cameras. A limit is required because
    /// a file with a few hundred bytes can declare any size.
    const DEFAULT_MAX_PIXELS: u64 = 64 << 20;

    /// 1 GiB. At the maximum number of pixels, an ordinary JPEG needs 192 MiB (384 MiB with a quarter turn),
    /// a progressive JPEG 576 MiB, and a WebP with alpha about 800 MiB. Half the limit would refuse
    /// progressive JPEGs from full-frame cameras. Photos never need more than the limit.
    const DEFAULT_MAX_BYTES: u64 = 1 << 30;

    /// Checks the declared size and returns the bytes of the RGB pixels.
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
            let reason = format!("the header declares {width}x{height} pixels");
            return Err(ImageError::malformed(format, reason));
        }
        usize::try_from(pixels)
            .ok()
            .and_then(|pixels| pixels.checked_mul(3))
            .ok_or(too_many)
    }

    /// Checks the bytes needed for decoding.
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

/// Limits for the size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum bytes of the batch tensor.
    pub max_bytes: usize,
}

impl BatchLimits {
    /// 1 GiB, or 1,783 samples of 224x224 in `f32`, several times any useful batch. It prevents requests for
    /// tensors that exceed the machine's memory. Memory budgets of tenants are enforced by the host.
    const DEFAULT_MAX_BYTES: usize = 1 << 30;
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            max_bytes: Self::DEFAULT_MAX_BYTES,
        }
    }
}
