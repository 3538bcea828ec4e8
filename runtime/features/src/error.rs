use std::io;
use std::path::PathBuf;

/// Error of the feature cache. Jobs continue without the cache.
#[derive(Debug, thiserror::Error)]
pub enum FeatureError {
    /// A file system operation failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// Attempted operation.
        doing: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// A running job is using the store.
    #[error("{} is used by a running job, which must be stopped first", path.display())]
    Used {
        /// Folder of the store.
        path: PathBuf,
    },
    /// The size of a row is 0 or overflows.
    #[error("rows of shape {shape:?} are empty or too large for the feature cache")]
    Row {
        /// Shape of one row.
        shape: Vec<usize>,
    },
}

/// Returns a function for `map_err` that adds the operation and the path to an I/O error.
pub(crate) fn failed<'a>(
    doing: &'static str,
    path: &'a std::path::Path,
) -> impl FnOnce(io::Error) -> FeatureError + 'a {
    move |source| FeatureError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
