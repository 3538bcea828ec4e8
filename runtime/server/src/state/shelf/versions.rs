//! What a name on a shelf stands for, and how that is written down.

use crate::state::Unknown;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What uploads of one kind say of themselves.
pub(crate) trait Facts:
    Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
}

impl<F: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static> Facts for F {}

/// One version of a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredVersion<F> {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) uploaded_at: u64,
    /// Where its bytes are.
    pub(super) blob: String,
    pub(crate) facts: F,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "F: Facts")]
pub(crate) struct Versions<F> {
    /// Oldest first, each SHA-256 once; never empty.
    pub(super) versions: Vec<Arc<StoredVersion<F>>>,
    /// Whether the name is refused, whatever its versions.
    #[serde(default)]
    pub(super) disabled: bool,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// A name with all its versions, as an admin looks at it.
pub(crate) struct NamedUpload<F> {
    pub(crate) owner: String,
    pub(crate) name: String,
    /// Oldest first; never empty.
    pub(crate) versions: Vec<Arc<StoredVersion<F>>>,
    pub(crate) disabled: bool,
}

/// What a name and a hash lead to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FindResult<F> {
    /// The version asked for.
    Version(Arc<StoredVersion<F>>),
    /// The name stands for other bytes.
    OtherVersion(Arc<StoredVersion<F>>),
    /// No such name.
    Missing,
}
