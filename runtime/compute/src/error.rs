use frostline_engine::{Device, EngineError};
use frostline_graph::GraphError;
use frostline_tensor::ShapeError;
use frostline_training::TrainingError;

/// Error that ends a computation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// Training is impossible for the layers after the freeze cut.
    #[error("cannot train the layers after the freeze cut '{freeze}': {source}")]
    Training {
        /// The freeze cut.
        freeze: String,
        /// Reason from the training library.
        source: TrainingError,
    },
    /// Features cannot be standardized.
    #[error("standardizing features requires a linear classifier: {why}")]
    Standardize {
        /// Reason and suggested fix.
        why: String,
    },
    /// The engine failed.
    #[error("{doing}: {source}")]
    Engine {
        /// Description of the failed operation.
        doing: &'static str,
        /// Error from the engine.
        source: EngineError,
    },
    /// The engine has no implementation of a layer that computes in bfloat16.
    #[error(
        "the network computes in bfloat16, which ONNX Runtime does not support for all of its layers on {device}; export it in f32 \
         (`model.float()` in PyTorch)"
    )]
    Bfloat16 {
        /// The trainer's device.
        device: Device,
        /// Error from the engine.
        source: EngineError,
    },
    /// Frozen layers that this machine computes in f16 give values beyond its range.
    #[error(
        "an activation at the freeze cut '{freeze}' exceeds the range of f16 (65504) or is not a number; use tf32 or full precision"
    )]
    F16Range {
        /// The freeze cut.
        freeze: String,
    },
    /// CutMix was requested for rows that are not feature maps `[channels, height, width]`.
    #[error(
        "cutmix_alpha is above 0, features at the freeze cut are {shape:?}; CutMix requires feature maps; use mixup_alpha"
    )]
    CutMix {
        /// Shape of the batch, with the batch axis.
        shape: Vec<usize>,
    },
    /// The layers cannot be cut or analyzed, or weights cannot be merged.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Tensor shapes do not match.
    #[error("tensor shapes do not match on the trainer: {0}")]
    Shape(#[from] ShapeError),
    /// The system could not start a thread.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// Error from the system.
        source: std::io::Error,
    },
    /// A component stopped unexpectedly, which is a bug.
    #[error("the trainer's {part} stopped unexpectedly; this is a bug in Frostline, please report it")]
    Ended {
        /// Name of the component.
        part: &'static str,
    },
}

impl ComputeError {
    /// Converts errors to a [`ComputeError::Training`] for the freeze cut `freeze`.
    pub fn not_trained(freeze: &str) -> impl FnOnce(TrainingError) -> Self {
        let freeze = freeze.to_owned();
        |source| Self::Training { freeze, source }
    }

    /// Converts errors to a [`ComputeError::Engine`] with a description of the operation.
    pub fn engine(doing: &'static str) -> impl FnOnce(EngineError) -> Self {
        move |source| Self::Engine { doing, source }
    }

    /// Creates the error of the engine during a training step.
    pub(crate) fn training(source: EngineError) -> Self {
        Self::engine("training")(source)
    }
}
