use crate::{ImageError, ImageFormat};

/// Limits for the size that an image declares, checked before decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum number of pixels (width times height).
    pub max_pixels: u64,
    /// Maximum bytes allocated for decoding and resizing at any time.
    pub max_bytes: u64,
    /// Maximum work for decoding, in pixels of a baseline JPEG (2 ns each).
    pub max_work: u64,
}

impl DecodeLimits {
    /// 256 Mi pixels, enough for phones with 200 megapixels. A limit is required because a file with a few
    /// hundred bytes can declare any size.
    pub const DEFAULT_MAX_PIXELS: u64 = 256 << 20;

    /// Upper bound for the setting, about that of a JPEG with 65,535 x 65,535 pixels.
    pub const LARGEST_MAX_PIXELS: u64 = 1 << 32;

    /// Memory limit in bytes per pixel. An ordinary JPEG needs 3 bytes per pixel, or 6 with a quarter turn.
    /// Progressive JPEGs need 9 and WebPs with alpha 12, so large ones are refused.
    const BYTES_PER_PIXEL: u64 = 8;

    /// Minimum memory limit of 1 GiB, enough for photos of 60 megapixels in any format.
    const MIN_MAX_BYTES: u64 = 1 << 30;

    /// Minimum work limit, one to two seconds of a thread. A decoder cannot be interrupted, so this is how long
    /// a thread is occupied after its client has left. It is enough for progressive JPEGs of 64 Mi pixels, with
    /// the 10 scans of usual encoders and 2 bits per pixel.
    const MIN_MAX_WORK: u64 = 720 << 20;

    /// Returns the limits for images with up to `max_pixels` pixels. `None` selects the default.
    pub fn new(max_pixels: Option<u64>) -> Self {
        let max_pixels = max_pixels.unwrap_or(Self::DEFAULT_MAX_PIXELS);
        let max_bytes = max_pixels.saturating_mul(Self::BYTES_PER_PIXEL);
        Self {
            max_pixels,
            max_bytes: max_bytes.max(Self::MIN_MAX_BYTES),
            max_work: max_pixels.max(Self::MIN_MAX_WORK),
        }
    }

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

    /// Checks the work of decoding. `reason` describes the size and the features that cost time.
    pub(crate) fn check_work(
        &self,
        format: ImageFormat,
        work: u64,
        reason: impl FnOnce() -> String,
    ) -> Result<(), ImageError> {
        if work > self.max_work {
            return Err(ImageError::TooMuchWork {
                format,
                reason: reason(),
                work,
                limit: self.max_work,
            });
        }
        Ok(())
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self::new(None)
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
