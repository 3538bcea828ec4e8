use crate::bindings::wasi::nn::errors::Error;
use crate::{ErrorCode, Failure};

impl Failure {
    /// A failure with `code` and a text for people.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// [`ErrorCode::InvalidArgument`] with a text for people.
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
