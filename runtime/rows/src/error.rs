use frostline_client::ClientError;
use frostline_tensor::ShapeError;

/// Error that prevents a batch of rows.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// A host refused the request, failed or did not respond.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A row is not cached, and there is no connection to hosts.
    #[error("a row is not cached")]
    NotCached,
    /// The shapes of rows differ.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A task was cancelled or panicked.
    #[error("the {part} ended unexpectedly; report this as a bug")]
    Ended {
        /// Name of the task.
        part: &'static str,
    },
}
