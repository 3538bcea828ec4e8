//! What guests logged.

use serde::{Deserialize, Serialize};

/// What a tenant's guest logged on a host lately: `GET /v1/guests/{name}/log`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestLog {
    /// Oldest first.
    pub lines: Vec<GuestLine>,
    /// What to ask `after` for those that follow.
    pub next: u64,
    /// Whether there are some that follow already.
    pub more: bool,
    /// Whether the host let go of lines before these for want of room, which were not asked for yet.
    pub dropped: bool,
}

/// A line that a guest logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestLine {
    /// Ever more on one host, also after a restart.
    pub number: u64,
    /// Seconds since 1970.
    pub at: f64,
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// Which of the host's extractions it was.
    pub extraction: String,
    /// The line, without control characters.
    pub text: String,
}
