use crate::bindings::wasi::nn::errors::Error;
use crate::{ErrorCode, Failure};

impl Failure {
    /// Creates a failure with a human-readable message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Creates a failure with the code [`ErrorCode::InvalidArgument`] and a human-readable message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            code: error.code(),
            message: error.data(),
        }
    }
}
