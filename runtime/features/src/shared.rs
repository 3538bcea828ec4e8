//! Storage for segments shared between machines.

use frostline_tensor::BoxFuture;
use std::ops::Range;

/// Error message of an object store, without credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// An object in a [`SegmentStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Name without the folder.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

/// An object store shared between machines. Keys have the form `folder/name`.
///
/// # Errors
/// All operations return [`Unavailable`] if the object store fails.
pub trait SegmentStore: Send + Sync + std::fmt::Debug {
    /// Returns the address for display, without credentials.
    fn shown(&self) -> String;

    /// Lists up to `most` objects of `folder` after the name `after`, ordered by name. Returns an empty list
    /// if the folder does not exist.
    fn list(
        &self,
        folder: String,
        after: Option<String>,
        most: usize,
    ) -> BoxFuture<Result<Vec<Stored>, Unavailable>>;

    /// Reads a range of an object. Returns fewer bytes if the object ends within the range.
    fn read(&self, key: String, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, Unavailable>>;

    /// Creates an object atomically without replacing an existing one. Returns false if the object exists.
    fn put_new(&self, key: String, bytes: Vec<u8>) -> BoxFuture<Result<bool, Unavailable>>;
}
