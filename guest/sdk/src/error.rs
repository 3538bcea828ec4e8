use crate::bindings::wasi::nn::errors;
use crate::{Error, ErrorCode};

impl Error {
    /// Creates an error with a human-readable message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Creates an error with the code [`ErrorCode::InvalidArgument`] and a human-readable message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
}

impl From<errors::Error> for Error {
    fn from(error: errors::Error) -> Self {
        Self {
            code: match error.code() {
                errors::ErrorCode::InvalidArgument => ErrorCode::InvalidArgument,
                errors::ErrorCode::InvalidEncoding => ErrorCode::InvalidData,
                errors::ErrorCode::Timeout => ErrorCode::Timeout,
                errors::ErrorCode::UnsupportedOperation => ErrorCode::Unsupported,
                errors::ErrorCode::TooLarge => ErrorCode::TooLarge,
                errors::ErrorCode::NotFound => ErrorCode::NotFound,
                errors::ErrorCode::Security => ErrorCode::NotPermitted,
                errors::ErrorCode::RuntimeError | errors::ErrorCode::Unknown => ErrorCode::Failed,
            },
            message: error.data(),
        }
    }
}
