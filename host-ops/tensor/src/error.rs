use serde::{Deserialize, Serialize};

/// Class of a failed operation, equal to the error codes in `wasi:nn`. The names on the wire use kebab-case
/// (`invalid-argument`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::AsRefStr, strum::Display,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum OpErrorCode {
    /// The caller passed an invalid argument (a wrong shape, an unknown name).
    InvalidArgument,
    /// The bytes are not valid in the declared encoding.
    InvalidEncoding,
    /// A deadline passed.
    Timeout,
    /// The operation failed during execution.
    RuntimeError,
    /// The operation is known but not supported.
    UnsupportedOperation,
    /// The request exceeds a limit, which is named in the message.
    TooLarge,
    /// The requested object, data root, model, stage or tensor does not exist.
    NotFound,
    /// The operation is refused for security reasons.
    Security,
    /// No other code applies.
    Unknown,
}

/// Error returned by operations on tensors, objects and models.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct OpError {
    /// Class of the failure, for programs.
    pub code: OpErrorCode,
    /// Message for people. Describes the failure and, if possible, the next step.
    pub message: String,
    /// True if the host caused the error, for example because memory or a lane was unavailable. The request
    /// itself may be valid, so a retry may succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_caused: bool,
}

impl OpError {
    /// Returns an error with `code` and `message` that is not host-caused.
    pub fn new(code: OpErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            host_caused: false,
        }
    }
    /// Returns an error that the host caused, not the request.
    pub fn from_host(code: OpErrorCode, message: impl Into<String>) -> Self {
        Self {
            host_caused: true,
            ..Self::new(code, message)
        }
    }
    /// Returns an [`OpErrorCode::InvalidArgument`] error.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(OpErrorCode::InvalidArgument, message)
    }
    /// Returns an [`OpErrorCode::RuntimeError`] error.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new(OpErrorCode::RuntimeError, message)
    }
    /// Returns an [`OpErrorCode::NotFound`] error.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(OpErrorCode::NotFound, message)
    }
    /// Returns an [`OpErrorCode::TooLarge`] error.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(OpErrorCode::TooLarge, message)
    }
}

impl From<crate::ShapeError> for OpError {
    fn from(error: crate::ShapeError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<crate::AugmentationError> for OpError {
    fn from(error: crate::AugmentationError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<crate::PixelSpecError> for OpError {
    fn from(error: crate::PixelSpecError) -> Self {
        Self::invalid(error.to_string())
    }
}
