use serde::{Deserialize, Serialize};

/// What kind of failure an operation ended with. The first nine are `wasi:nn`'s error codes. Its name on the wire is in kebab-case, such
/// as `invalid-argument`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::AsRefStr, strum::Display,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum OpErrorCode {
    /// The caller passed something that cannot be right: a wrong shape, an unknown name.
    InvalidArgument,
    /// The bytes are not in the encoding they claim.
    InvalidEncoding,
    /// A deadline passed.
    Timeout,
    /// The operation itself failed.
    RuntimeError,
    /// Known, but not done here.
    UnsupportedOperation,
    /// Over a limit; the message names it.
    TooLarge,
    /// No such object, model or tensor.
    NotFound,
    /// Refused for reasons of safety.
    Security,
    /// None of the others.
    Unknown,
}

/// Why an operation on tensors, objects or models failed: a code for programs, a text for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct OpError {
    /// For programs.
    pub code: OpErrorCode,
    /// What happened, to what, and where possible what to do next.
    pub message: String,
    /// Whether it says nothing of what was asked for: the host lacked memory or a lane, and asking again may end well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_caused: bool,
}

impl OpError {
    /// An error with `code` and a message for people.
    pub fn new(code: OpErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            host_caused: false,
        }
    }
    /// An error that the host caused, not what was asked for.
    pub fn of_host(code: OpErrorCode, message: impl Into<String>) -> Self {
        Self {
            host_caused: true,
            ..Self::new(code, message)
        }
    }
    /// [`OpErrorCode::InvalidArgument`] with a message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(OpErrorCode::InvalidArgument, message)
    }
    /// [`OpErrorCode::RuntimeError`] with a message.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new(OpErrorCode::RuntimeError, message)
    }
    /// [`OpErrorCode::NotFound`] with a message.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(OpErrorCode::NotFound, message)
    }
    /// [`OpErrorCode::TooLarge`] with a message.
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
