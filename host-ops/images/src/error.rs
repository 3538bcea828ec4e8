use frostline_tensor::{AugmentationError, OpError, OpErrorCode, PixelSpecError, ShapeError};

/// The encodings that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "UPPERCASE")]
pub enum ImageFormat {
    /// Baseline, extended and progressive JPEG with Huffman coding, 8 bits a component.
    Jpeg,
    /// PNG of every color type and depth.
    Png,
    /// WebP, lossy and lossless; of an animation the first frame.
    #[strum(serialize = "WebP")]
    WebP,
    /// GIF; the first frame.
    Gif,
    /// BMP, with palettes, colors or runs.
    Bmp,
}

/// Why an object did not become pixels.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ImageError {
    /// The object has no bytes.
    #[error("the object is empty; replace it by an image")]
    Empty,
    /// None of the formats.
    #[error("not a JPEG, PNG, WebP, GIF or BMP: it starts with {start}; remove the object, or convert it")]
    Unrecognized {
        /// The first bytes, as text where printable and hex.
        start: String,
    },
    /// A format that is recognized and not decoded.
    #[error("{name} is not supported; convert it to JPEG or PNG")]
    UnsupportedFormat {
        /// Its name.
        name: &'static str,
    },
    /// The data ends before the image does.
    #[error("truncated {format}: {what}; copy the object again from its source")]
    Truncated {
        /// What it claims to be.
        format: ImageFormat,
        /// Where it ends.
        what: String,
    },
    /// The data breaks the format's rules.
    #[error("malformed {format}: {reason}; remove the object, or replace it")]
    Malformed {
        /// What it claims to be.
        format: ImageFormat,
        /// The decoder's own words.
        reason: String,
    },
    /// A valid image of a kind that is not decoded here.
    #[error("unsupported {format}: {feature}; convert the image to an ordinary 8-bit JPEG or PNG")]
    Unsupported {
        /// What it is.
        format: ImageFormat,
        /// The feature that is missing here.
        feature: String,
    },
    /// More pixels than the limit; refused before they are allocated.
    #[error("{format} of {width}x{height} pixels is over the limit of {limit} pixels; scale it down")]
    TooManyPixels {
        /// What it claims to be.
        format: ImageFormat,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The limit in pixels.
        limit: u64,
    },
    /// Decoding takes more memory than the limit; refused before it is allocated.
    #[error(
        "decoding this {format} takes {needed} bytes of memory, over the limit of {limit}; scale it down, or save it as a baseline JPEG"
    )]
    TooMuchMemory {
        /// What it claims to be.
        format: ImageFormat,
        /// Bytes that decoding takes.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The batch tensor would be larger than the limit; refused before it is allocated.
    #[error(
        "a batch of {samples} samples takes {bytes} bytes, over the limit of {limit}; ask for fewer samples at once"
    )]
    BatchTooLarge {
        /// Samples asked for.
        samples: usize,
        /// Bytes of the tensor.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The decoder gave up in a way it should not; the process is unharmed.
    #[error("the {format} decoder failed on this image; please report it with the file")]
    DecoderFailed {
        /// What it claims to be.
        format: ImageFormat,
    },
    /// The pool's threads have ended.
    #[error("the decoding threads have been shut down")]
    PoolClosed,
    /// The spec cannot be carried out.
    #[error(transparent)]
    Spec(#[from] PixelSpecError),
    /// An augmentation that cannot be carried out.
    #[error(transparent)]
    Augmentation(#[from] AugmentationError),
    /// A tensor is not of the shape or type the operation takes.
    #[error("expected pixels as {expected}, got {actual}")]
    Mismatch {
        /// What the operation takes.
        expected: String,
        /// What it was given.
        actual: String,
    },
    /// A shape that overflows.
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

    /// The class of failure, for programs.
    pub fn code(&self) -> OpErrorCode {
        match self {
            Self::Empty | Self::Unrecognized { .. } | Self::Truncated { .. } | Self::Malformed { .. } => {
                OpErrorCode::InvalidEncoding
            }
            Self::Unsupported { .. } | Self::UnsupportedFormat { .. } => OpErrorCode::UnsupportedOperation,
            Self::TooManyPixels { .. } | Self::TooMuchMemory { .. } | Self::BatchTooLarge { .. } => {
                OpErrorCode::TooLarge
            }
            Self::DecoderFailed { .. } | Self::PoolClosed => OpErrorCode::RuntimeError,
            Self::Spec(_) | Self::Augmentation(_) | Self::Mismatch { .. } | Self::Shape(_) => {
                OpErrorCode::InvalidArgument
            }
        }
    }
}

impl ImageError {
    /// The error as an operation's, in these words.
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
