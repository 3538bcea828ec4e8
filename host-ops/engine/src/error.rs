use crate::{Device, Interrupt, InterruptCause};
use frostline_batching::OutOfBudget;
use frostline_tensor::{Cause, DType, OpError, OpErrorCode};
use std::path::PathBuf;

const LIBRARY_HINT: &str = "run `frostline onnxruntime install`, or set ORT_DYLIB_PATH to the libonnxruntime of ONNX Runtime 1.23 or later";

/// Error of an engine operation. Texts of ONNX Runtime are included unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// ONNX Runtime's library is not installed.
    #[error("no ONNX Runtime library found (looked in {searched}); {LIBRARY_HINT}")]
    LibraryMissing {
        /// All searched locations in order.
        searched: String,
    },
    /// The library is too old or built for another architecture, or the file is not a library.
    #[error("cannot use ONNX Runtime library {path}: {reason}; {LIBRARY_HINT}", path = path.display())]
    LibraryUnusable {
        /// The library file.
        path: PathBuf,
        /// The reason.
        #[source]
        reason: Cause,
    },
    /// The requested device is missing or does not work.
    #[error("device {device} cannot be used: {reason}")]
    Device {
        /// The requested device.
        device: Device,
        /// The reason and the fix.
        reason: String,
    },
    /// The bytes are not a model that ONNX Runtime can load.
    #[error("ONNX Runtime cannot load the model: {reason}")]
    Model {
        /// The text of ONNX Runtime.
        reason: String,
    },
    /// The model does not have an input with this name.
    #[error("unknown input `{name}`, expected one of {known}")]
    UnknownInput {
        /// The requested name.
        name: String,
        /// The names of the inputs.
        known: String,
    },
    /// An input is missing or was passed twice.
    #[error("input `{name}` of the model was passed {times} times instead of once")]
    InputCount {
        /// The input.
        name: String,
        /// Number of times the input was passed.
        times: usize,
    },
    /// The input has a different type or shape than the model declares.
    #[error("input `{name}` takes {expected}, not {actual}")]
    InputMismatch {
        /// The input.
        name: String,
        /// The declared type and shape, for example `f32[?, 3, 224, 224]`.
        expected: String,
        /// The actual type and shape.
        actual: String,
    },
    /// The model does not have an output with this name.
    #[error("unknown output `{name}`, expected one of {known}")]
    UnknownOutput {
        /// The requested name.
        name: String,
        /// The names of the outputs.
        known: String,
    },
    /// The output has an unsupported type.
    #[error("output `{name}` is {actual}; outputs must be tensors of {known}", known = known_dtypes())]
    OutputType {
        /// The output.
        name: String,
        /// The type of the output.
        actual: String,
    },
    /// ONNX Runtime failed to execute the model for another reason than memory, or a step would continue a
    /// partially updated state.
    #[error("ONNX Runtime could not run the model: {reason}")]
    Run {
        /// The text of ONNX Runtime.
        reason: String,
    },
    /// An allocation failed.
    #[error("out of memory: {reason}")]
    OutOfMemory {
        /// Error text from ONNX Runtime or the operating system.
        reason: String,
    },
    /// An [`Interrupt`] ended the operation.
    #[error(transparent)]
    Interrupted {
        /// The cause of the interrupt.
        #[from]
        cause: InterruptCause,
    },
    /// The operating system could not start a thread for a lane.
    #[error("cannot start a lane: {reason}; use fewer lanes")]
    Threads {
        /// The text of the operating system.
        #[source]
        reason: Cause,
    },
    /// A lane's process failed to start.
    #[error(
        "cannot run lanes with the program `{program}`: {reason}; fix this, or run the lanes in the host's process",
        program = program.display()
    )]
    Process {
        /// The program of the process.
        program: PathBuf,
        /// The reason.
        #[source]
        reason: Cause,
    },
    /// The memory budget is too small to start a lane.
    #[error(
        "a lane's process needs {process} bytes, and {least} bytes with the smallest batch: {room}; give the host a larger memory_budget or fewer lanes"
    )]
    Memory {
        /// Bytes needed by a lane's process.
        process: u64,
        /// Bytes that the process needs together with the smallest engine batch.
        least: u64,
        /// The failed reservation.
        #[source]
        room: OutOfBudget,
    },
    /// This process was not started as the process of a lane.
    #[error("this process cannot serve a lane: {reason}; only a host starts such processes")]
    Lane {
        /// The reason.
        #[source]
        reason: Cause,
    },
    /// ONNX Runtime failed independently of the model and the inputs.
    #[error("ONNX Runtime could not {doing}: {reason}")]
    Internal {
        /// The failed operation as a verb phrase, such as `bind a step`.
        doing: &'static str,
        /// The text of ONNX Runtime.
        reason: String,
    },
}

impl EngineError {
    /// Returns the error code for callers of [`GraphExecutor`](frostline_tensor::GraphExecutor).
    pub fn code(&self) -> OpErrorCode {
        match self {
            Self::UnknownInput { .. } | Self::InputCount { .. } | Self::InputMismatch { .. } => {
                OpErrorCode::InvalidArgument
            }
            Self::Model { .. } => OpErrorCode::InvalidEncoding,
            Self::UnknownOutput { .. } => OpErrorCode::NotFound,
            Self::OutputType { .. } | Self::Device { .. } => OpErrorCode::UnsupportedOperation,
            Self::Interrupted {
                cause:
                    InterruptCause::Deadline { .. }
                    | InterruptCause::OpenDeadline { .. }
                    | InterruptCause::HeldUp { .. },
            } => OpErrorCode::Timeout,
            Self::LibraryMissing { .. }
            | Self::LibraryUnusable { .. }
            | Self::Run { .. }
            | Self::OutOfMemory { .. }
            | Self::Interrupted { .. }
            | Self::Threads { .. }
            | Self::Process { .. }
            | Self::Memory { .. }
            | Self::Lane { .. }
            | Self::Internal { .. } => OpErrorCode::RuntimeError,
        }
    }

    /// Converts the error for callers of [`GraphExecutor`](frostline_tensor::GraphExecutor), with another
    /// message.
    pub(crate) fn with_message(&self, text: String) -> OpError {
        OpError {
            host_caused: self.is_host_caused(),
            ..OpError::new(self.code(), text)
        }
    }

    /// Classifies the text of ONNX Runtime for a failed execution.
    pub(crate) fn of_run(reason: &str) -> Self {
        Self::classify(reason, |reason| Self::Run { reason })
    }

    /// Classifies the text of ONNX Runtime for a model that failed to load.
    pub(crate) fn of_load(reason: &str) -> Self {
        Self::classify(reason, |reason| Self::Model { reason })
    }

    fn classify(reason: &str, other: impl FnOnce(String) -> Self) -> Self {
        let reason = reason.to_owned();
        match is_out_of_memory(&reason) {
            true => Self::OutOfMemory { reason },
            false => other(reason),
        }
    }

    /// Returns the cause of `interrupt` if it was triggered, otherwise `self`.
    pub(crate) fn or_interrupted(self, interrupt: &Interrupt) -> Self {
        interrupt.cause().map_or(self, Self::from)
    }

    pub(crate) fn internal<R>(doing: &'static str) -> impl FnOnce(ort::Error<R>) -> Self {
        move |error| Self::classify(error.message(), |reason| Self::Internal { doing, reason })
    }

    /// Returns true if the host caused the error, so that the same request may succeed later. This is the
    /// case if the host was shutting down, lost a lane or was out of memory, and if the batch was ended
    /// because another tenant was waiting.
    pub fn is_host_caused(&self) -> bool {
        matches!(
            self,
            Self::Interrupted {
                cause: InterruptCause::Shutdown | InterruptCause::HeldUp { .. }
            } | Self::Threads { .. }
                | Self::Process { .. }
                | Self::Memory { .. }
                | Self::Lane { .. }
                | Self::OutOfMemory { .. }
        )
    }
}

impl From<EngineError> for OpError {
    fn from(error: EngineError) -> Self {
        error.with_message(error.to_string())
    }
}

/// Returns true if a text of ONNX Runtime reports a failed allocation by the C++ library, by ONNX Runtime's
/// allocators or by CUDA.
fn is_out_of_memory(reason: &str) -> bool {
    let words = [
        "bad_alloc",
        "Failed to allocate memory",
        "bad allocation",
        "out of memory",
        // Used by CUDA's arena, then by the error codes of cuDNN, cuBLAS and cuFFT.
        "is smaller than requested bytes",
        "_ALLOC_FAILED",
    ];
    words.iter().any(|word| reason.contains(word))
}

fn known_dtypes() -> String {
    use DType::{Bf16, F16, F32, F64, I32, I64, U8};
    [U8, F16, Bf16, F32, F64, I32, I64]
        .map(|dtype| dtype.to_string())
        .join(", ")
}
