//! Orders of admins that all hosts of a state must know.

use super::error::StateError;
use super::record::Unknown;
use crate::unique::unique_id;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A job that all hosts refuse. The name of the document is `TENANT/ID`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cancellation {
    /// Seconds since 1970.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// The latest order to drain a host. The name of the document is the name of the host. A restarted host has another
/// run and ignores the order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrainOrder {
    /// Ids of the host processes that follow the order.
    pub(crate) runs: BTreeSet<String>,
    /// True to drain the host, false to accept work again.
    pub(crate) drained: bool,
    /// Random, so that hosts follow a repeated order.
    mark: String,
    #[serde(flatten)]
    unknown: Unknown,
}

impl DrainOrder {
    pub(crate) fn new(runs: BTreeSet<String>, drained: bool) -> Result<Self, StateError> {
        Ok(Self {
            runs,
            drained,
            mark: unique_id()?,
            unknown: Unknown::new(),
        })
    }
}
