//! What a name on a shelf stands for, and how that is written down.

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
}

/// What a name stands for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "F: Facts")]
pub(crate) struct Versions<F> {
    /// Oldest first; never empty.
    pub(super) versions: Vec<Arc<StoredVersion<F>>>,
    /// Whether the name is refused, whatever its versions.
    #[serde(default)]
    pub(super) disabled: bool,
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
