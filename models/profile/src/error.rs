use frostline_tensor::{OpError, ShapeError};
use frostline_wire::FrameError;

/// Errors while measuring a network.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProfileError {
    /// No cut, sample or lane is available.
    #[error("cannot measure a profile without a {what}")]
    Missing {
        /// `cut`, `sample` or `lane`.
        what: &'static str,
    },
    /// The engine could not execute a segment.
    #[error("cannot measure '{from}' to '{to}': {source}")]
    Stage {
        /// Input tensor of the segment.
        from: String,
        /// Cut at the end of the segment.
        to: String,
        /// Error of the engine.
        source: OpError,
    },
    /// Activations could not be encoded.
    #[error("cannot encode the activations: {0}")]
    Frame(#[from] FrameError),
    /// Tensors have unexpected shapes.
    #[error("unexpected shape of a measured tensor: {0}")]
    Shape(#[from] ShapeError),
    /// The deadline was exceeded.
    #[error(
        "the profile timed out after {seconds} s; request fewer cuts, or retry when the machine is less busy"
    )]
    Deadline {
        /// Deadline in seconds.
        seconds: u64,
    },
    /// A thread panicked while measuring encodings.
    #[error("a thread panicked while measuring encodings")]
    Panicked,
}
