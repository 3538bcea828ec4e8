//! Versions of an upload as stored in the state.

use crate::state::Unknown;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Metadata of uploads of one kind.
pub(crate) trait Facts:
    Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
}

impl<F: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static> Facts for F {}

/// An uploaded version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredVersion<F> {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) uploaded_at: u64,
    /// Key of the object with the bytes.
    pub(super) blob: String,
    pub(crate) facts: F,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// Versions with the same name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "F: Facts")]
pub(crate) struct Versions<F> {
    /// Sorted from oldest to newest, never empty. Every SHA-256 is unique.
    pub(super) versions: Vec<Arc<StoredVersion<F>>>,
    /// True if all versions are refused, including later ones.
    #[serde(default)]
    pub(super) disabled: bool,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// A name with all versions, as shown to admins.
pub(crate) struct NamedUpload<F> {
    pub(crate) owner: String,
    pub(crate) name: String,
    /// Sorted from oldest to newest, never empty.
    pub(crate) versions: Vec<Arc<StoredVersion<F>>>,
    pub(crate) disabled: bool,
}

/// Result of looking up a name and a SHA-256.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FindResult<F> {
    /// The requested version.
    Version(Arc<StoredVersion<F>>),
    /// The name exists, but without the requested version. Contains the newest version.
    OtherVersion(Arc<StoredVersion<F>>),
    /// The name does not exist.
    Missing,
}
