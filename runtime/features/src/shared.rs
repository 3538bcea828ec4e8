//! Where segments lie for other machines.

use frostline_tensor::BoxFuture;
use std::ops::Range;

/// Why an object store did not do what it was asked to, for people; holds no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// An object of a [`SegmentStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Without its folder.
    pub name: String,
    /// In bytes.
    pub size: u64,
}

/// An object store that machines share. Keys are `folder/name`.
///
/// # Errors
/// All of it fails with [`Unavailable`].
pub trait SegmentStore: Send + Sync + std::fmt::Debug {
    /// Where it is, for people; without credentials.
    fn shown(&self) -> String;

    /// The first `most` objects of `folder` after the one called `after`, in the order of their names; none where there is no such folder.
    fn list(
        &self,
        folder: String,
        after: Option<String>,
        most: usize,
    ) -> BoxFuture<Result<Vec<Stored>, Unavailable>>;

    /// These bytes of an object, or fewer where it ends.
    fn read(&self, key: String, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, Unavailable>>;

    /// Creates an object, whole or not at all, and never replaces one; `false` where there is one.
    fn put_new(&self, key: String, bytes: Vec<u8>) -> BoxFuture<Result<bool, Unavailable>>;
}
