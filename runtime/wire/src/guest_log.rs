//! Log lines of guests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Recent log lines of a guest: `GET /v1/guests/{name}/log`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestLog {
    /// Log lines in ascending order of their numbers.
    pub lines: Vec<GuestLine>,
    /// Value of `after` for the next request.
    pub next: u64,
    /// True if more lines are available already.
    pub more: bool,
    /// True if the host evicted lines after `after` for lack of space.
    pub dropped: bool,
}

/// Log line of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestLine {
    /// Number of the line. Numbers increase on each host, even after a restart.
    pub number: u64,
    /// Unix time in seconds.
    pub at: f64,
    /// Level (`debug`, `info`, `warn` or `error`).
    pub level: String,
    /// Extraction id.
    pub extraction: String,
    /// Text without control characters.
    pub text: String,
}
