use std::io;
use std::path::PathBuf;

/// Why rows cannot be kept or read. A job goes on without.
#[derive(Debug, thiserror::Error)]
pub enum FeatureError {
    /// The system refuses something.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// The system's text.
        source: io::Error,
    },
    /// A store is used by a job that runs.
    #[error("{} is used by a job that runs; end it first", path.display())]
    Used {
        /// The store's folder.
        path: PathBuf,
    },
    /// Rows of this shape have no size that can be counted.
    #[error("rows of {shape:?} are too large to keep")]
    Row {
        /// Of one row.
        shape: Vec<usize>,
    },
}

/// Names what was tried with `path` when that fails.
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
