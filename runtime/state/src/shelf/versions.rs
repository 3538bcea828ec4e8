//! Versions of an upload as stored in the state.

use crate::record::Unknown;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Metadata of uploads of one kind.
pub trait Facts: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static {}

impl<F: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static> Facts for F {}

/// An uploaded version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredVersion<F> {
    /// SHA-256 of the bytes in hexadecimal digits.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Seconds since 1970.
    pub uploaded_at: u64,
    /// Key of the object with the bytes.
    pub(super) blob: String,
    /// Metadata that is available without reading the bytes.
    pub facts: F,
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
pub struct NamedUpload<F> {
    /// The tenant, or [`SHARED`](crate::SHARED).
    pub owner: String,
    /// Name of the guest or model.
    pub name: String,
    /// Sorted from oldest to newest, never empty.
    pub versions: Vec<Arc<StoredVersion<F>>>,
    /// True if an admin disabled the name.
    pub disabled: bool,
}

/// Result of looking up a name and a SHA-256.
#[derive(Debug, Clone, PartialEq)]
pub enum FindResult<F> {
    /// The requested version.
    Version(Arc<StoredVersion<F>>),
    /// The name exists, but without the requested version. Contains the newest version.
    OtherVersion(Arc<StoredVersion<F>>),
    /// The name does not exist.
    Missing,
}
