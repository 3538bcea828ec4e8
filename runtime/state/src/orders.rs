//! Orders of admins that all hosts of a state must know.

use crate::error::StateError;
use crate::record::Unknown;
use crate::record::unique_id;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A job that all hosts refuse. The name of the document is `TENANT/ID`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancellation {
    /// Seconds since 1970.
    pub at: u64,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The latest order to drain a host. The name of the document is the name of the host. A restarted host has another
/// run and ignores the order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// Ids of the host processes that follow the order.
    pub runs: BTreeSet<String>,
    /// True to drain the host, false to accept work again.
    pub drained: bool,
    /// Random, so that hosts follow a repeated order.
    mark: String,
    #[serde(flatten)]
    unknown: Unknown,
}

impl DrainOrder {
    /// Creates an order to the host processes `runs`.
    ///
    /// # Errors
    /// Returns [`StateError::Random`] if the system provides no random bytes.
    pub fn new(runs: BTreeSet<String>, drained: bool) -> Result<Self, StateError> {
        Ok(Self {
            runs,
            drained,
            mark: unique_id()?,
            unknown: Unknown::new(),
        })
    }
}
