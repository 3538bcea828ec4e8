use serde::{Deserialize, Serialize};

/// What a client can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// The request cannot be right; asking again gives the same answer.
    Request,
    /// No valid token.
    Unauthorized,
    /// No such thing, or not for this tenant.
    NotFound,
    /// Over a limit that waiting does not lift.
    TooLarge,
    /// The host has no room now: wait for `Retry-After`, then ask again.
    Busy,
    /// The host takes nothing new because it is about to stop: ask another at once, or this one after `Retry-After`, when it may be back.
    Stopping,
    /// The guest failed; its author has to look.
    Guest,
    /// The host failed; asking again may help.
    Host,
}

/// The JSON body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ErrorBody {
    /// What a client can do about it.
    pub class: ErrorClass,
    /// What happened, to what, and what to do next.
    pub message: String,
}
