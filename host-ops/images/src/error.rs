use frostline_tensor::{AugmentationError, OpError, OpErrorCode, PixelSpecError, ShapeError, StandIn};

/// The encodings that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "UPPERCASE")]
pub enum ImageFormat {
    /// Baseline, extended or progressive JPEG with Huffman coding and 8 bits per component.
    Jpeg,
    /// PNG of any color type and bit depth.
    Png,
    /// Lossy or lossless WebP. Only the first frame is decoded.
    #[strum(serialize = "WebP")]
    WebP,
    /// GIF. Only the first frame is decoded.
    Gif,
    /// BMP with a palette, run-length encoding or color masks.
    Bmp,
}

/// Reason why an object cannot be converted to pixels.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ImageError {
    /// The object is empty.
    #[error("the object is empty; replace it with an image")]
    Empty,
    /// The format is unknown.
    #[error("not a JPEG, PNG, WebP, GIF or BMP: it starts with {start}; remove the object, or convert it")]
    Unrecognized {
        /// The first bytes, shown as escaped text and hex.
        start: String,
    },
    /// The object is not the image, but a pointer to it or a page about it.
    #[error("the object is {0}")]
    StandIn(#[from] StandIn),
    /// The format is known but not supported.
    #[error("{name} is not supported; convert it to JPEG or PNG")]
    UnsupportedFormat {
        /// Name of the format.
        name: &'static str,
    },
    /// The data ends before the image is complete.
    #[error("truncated {format}: {what} (copy the object again from its source)")]
    Truncated {
        /// Format according to the first bytes.
        format: ImageFormat,
        /// Position at which the data ends.
        what: String,
    },
    /// The data violates the format's specification.
    #[error("malformed {format}: {reason} (replace or remove the object)")]
    Malformed {
        /// Format according to the first bytes.
        format: ImageFormat,
        /// Message of the decoder.
        reason: String,
    },
    /// The image is valid but uses an unsupported feature.
    #[error("unsupported {format}: {feature}; convert the image to an ordinary 8-bit JPEG or PNG")]
    Unsupported {
        /// Format of the image.
        format: ImageFormat,
        /// The unsupported feature.
        feature: String,
    },
    /// The number of pixels exceeds the limit. Detected before allocating memory.
    #[error(
        "{format} of {width}x{height} pixels exceeds the limit of {limit} pixels; reduce its size, or raise the limit `image_pixels`"
    )]
    TooManyPixels {
        /// Format according to the first bytes.
        format: ImageFormat,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Limit in pixels.
        limit: u64,
    },
    /// Decoding needs more memory than the limit. Detected before allocating memory.
    #[error(
        "decoding this {format} needs {needed} bytes of memory, over the limit of {limit}; scale it down, or save it as a baseline JPEG"
    )]
    TooMuchMemory {
        /// Format according to the first bytes.
        format: ImageFormat,
        /// Bytes needed for decoding.
        needed: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// Decoding takes longer than the limit. Detected before decoding.
    #[error(
        "decoding this {format} of {reason} costs as much as {work} pixels, over the limit of {limit}; scale it down, or save it as a \
         baseline JPEG"
    )]
    TooMuchWork {
        /// Format according to the first bytes.
        format: ImageFormat,
        /// Size of the image and the expensive feature.
        reason: String,
        /// Work in pixels of a baseline JPEG.
        work: u64,
        /// Limit in the same unit.
        limit: u64,
    },
    /// The batch tensor exceeds the limit. Detected before allocating memory.
    #[error(
        "a batch of {samples} samples needs {bytes} bytes and exceeds the limit of {limit}; request fewer samples"
    )]
    BatchTooLarge {
        /// Requested samples.
        samples: usize,
        /// Size of the tensor in bytes.
        bytes: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The decoder panicked or returned an inconsistent result. Other images are not affected.
    #[error("the {format} decoder failed on this image; please report it with the file")]
    DecoderFailed {
        /// Format according to the first bytes.
        format: ImageFormat,
    },
    /// Resizing or augmenting the image panicked. Other images are not affected.
    #[error("preparing the image failed because of a bug; please report it with the file and the command")]
    Panicked,
    /// The decoding threads did not return a result.
    #[error("the decoding threads have been shut down")]
    PoolClosed,
    /// The pixel spec is invalid.
    #[error(transparent)]
    Spec(#[from] PixelSpecError),
    /// The augmentation is invalid.
    #[error(transparent)]
    Augmentation(#[from] AugmentationError),
    /// Pixels have the wrong shape or type for the operation.
    #[error("expected pixels as {expected}, got {actual}")]
    Mismatch {
        /// Expected shape and type.
        expected: String,
        /// Actual shape and type.
        actual: String,
    },
    /// The size of the tensor overflows.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl ImageError {
    pub(crate) fn malformed(format: ImageFormat, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Malformed { format, reason }
    }

    pub(crate) fn truncated(format: ImageFormat, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Truncated { format, what }
    }

    pub(crate) fn unsupported(format: ImageFormat, feature: impl Into<String>) -> Self {
        let feature = feature.into();
        Self::Unsupported { format, feature }
    }

    /// Returns the class of the failure, for programs.
    pub fn code(&self) -> OpErrorCode {
        match self {
            Self::Empty
            | Self::Unrecognized { .. }
            | Self::StandIn(_)
            | Self::Truncated { .. }
            | Self::Malformed { .. } => OpErrorCode::InvalidEncoding,
            Self::Unsupported { .. } | Self::UnsupportedFormat { .. } => OpErrorCode::UnsupportedOperation,
            Self::TooManyPixels { .. }
            | Self::TooMuchMemory { .. }
            | Self::TooMuchWork { .. }
            | Self::BatchTooLarge { .. } => OpErrorCode::TooLarge,
            Self::DecoderFailed { .. } | Self::Panicked | Self::PoolClosed => OpErrorCode::RuntimeError,
            Self::Spec(_) | Self::Augmentation(_) | Self::Mismatch { .. } | Self::Shape(_) => {
                OpErrorCode::InvalidArgument
            }
        }
    }
}

impl ImageError {
    /// Converts the error to [`OpError`] with another message.
    pub(crate) fn with_message(&self, message: String) -> OpError {
        OpError {
            host_caused: matches!(self, Self::PoolClosed),
            ..OpError::new(self.code(), message)
        }
    }
}

impl From<ImageError> for OpError {
    fn from(error: ImageError) -> Self {
        let message = error.to_string();
        error.with_message(message)
    }
}
