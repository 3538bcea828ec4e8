use frostline_tensor::{OpError, ShapeError};
use frostline_wire::FrameError;

/// Why a network could not be measured.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProfileError {
    /// There is nothing to measure, or nothing to measure with.
    #[error("a profile needs at least one {what}")]
    Nothing {
        /// `cut` or `sample`.
        what: &'static str,
    },
    /// A part of the network did not run.
    #[error("cannot measure '{from}' to '{to}': {source}")]
    Stage {
        /// The tensor the part begins with.
        from: String,
        /// The cut it ends at.
        to: String,
        /// The engine's own text.
        source: OpError,
    },
    /// Activations could not be encoded.
    #[error("the activations could not be encoded: {0}")]
    Frame(#[from] FrameError),
    /// Tensors did not fit each other.
    #[error("the tensors to measure with do not fit: {0}")]
    Shape(#[from] ShapeError),
    /// It took too long.
    #[error(
        "the profile timed out after {seconds} s; ask for fewer cuts, or when the machine has less to do"
    )]
    Deadline {
        /// The limit.
        seconds: u64,
    },
    /// A helper thread was lost.
    #[error("a thread that measures encodings was lost")]
    Lost,
}
