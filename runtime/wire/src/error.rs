use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Classes of errors, which determine the client's reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ErrorClass {
    /// The request is invalid. Retrying does not help.
    Request,
    /// The token is missing or invalid.
    Unauthorized,
    /// The resource does not exist or is not accessible.
    NotFound,
    /// The request exceeds a limit. Waiting does not help.
    TooLarge,
    /// The host is overloaded. Retry after `Retry-After`.
    Busy,
    /// The host is draining. Use another host, or retry after `Retry-After` if the host is being restarted.
    Stopping,
    /// The guest failed. The problem is in the guest.
    Guest,
    /// The host failed. Retrying may help.
    Host,
}

/// JSON body of all error responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, JsonSchema)]
#[error("{message}")]
pub struct ErrorBody {
    /// Class of the error.
    pub class: ErrorClass,
    /// Cause, affected resource and next step.
    pub message: String,
}
