use crate::{Device, Interrupt, InterruptCause};
use frostline_batching::OutOfBudget;
use frostline_tensor::{Cause, DType, OpError, OpErrorCode};
use std::path::PathBuf;

const LIBRARY_HINT: &str = "run `frostline onnxruntime install`, or set ORT_DYLIB_PATH to the libonnxruntime of ONNX Runtime 1.23 or later";

/// Why the engine could not do what it was asked. Texts of ONNX Runtime are passed on as they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// There is no ONNX Runtime library where it is looked for.
    #[error("no ONNX Runtime library found (looked in {searched}); {LIBRARY_HINT}")]
    LibraryMissing {
        /// The places, in the order they were tried.
        searched: String,
    },
    /// A library was found, but it cannot be used: too old, another architecture, not a library.
    #[error("cannot use ONNX Runtime library {path}: {reason}; {LIBRARY_HINT}", path = path.display())]
    LibraryUnusable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        reason: Cause,
    },
    /// The device asked for is absent or fails.
    #[error("device {device} cannot be used: {reason}")]
    Device {
        /// The device asked for.
        device: Device,
        /// Why not, and what to do.
        reason: String,
    },
    /// The bytes are not a model that ONNX Runtime runs.
    #[error("ONNX Runtime cannot load the model: {reason}")]
    Model {
        /// ONNX Runtime's own text.
        reason: String,
    },
    /// The session has no input of that name.
    #[error("the model has no input `{name}`; its inputs are {known}")]
    UnknownInput {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// An input was not given, or given twice.
    #[error("input `{name}` of the model was given {times} times, it must be given once")]
    InputCount {
        /// The input.
        name: String,
        /// How often it was given.
        times: usize,
    },
    /// An input's type or shape does not fit.
    #[error("input `{name}` takes {expected}, not {actual}")]
    InputMismatch {
        /// The input.
        name: String,
        /// What the model declares, such as `f32[?, 3, 224, 224]`.
        expected: String,
        /// What was given.
        actual: String,
    },
    /// The session has no output of that name.
    #[error("the model has no output `{name}`; its outputs are {known}")]
    UnknownOutput {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// An output is of a type that tensors here do not have.
    #[error("output `{name}` is {actual}; outputs must be tensors of {known}", known = known_dtypes())]
    OutputType {
        /// The output.
        name: String,
        /// What it is.
        actual: String,
    },
    /// A kernel failed.
    #[error("ONNX Runtime could not run the model: {reason}")]
    Run {
        /// ONNX Runtime's own text.
        reason: String,
    },
    /// Out of memory.
    #[error("out of memory: {reason}")]
    OutOfMemory {
        /// ONNX Runtime's own text, or the system's.
        reason: String,
    },
    /// An [`Interrupt`](crate::Interrupt) ended the operation.
    #[error(transparent)]
    Interrupted {
        /// Why it was triggered.
        #[from]
        cause: InterruptCause,
    },
    /// The operating system gave no thread for a lane.
    #[error("cannot start a lane: {reason}; use fewer lanes")]
    Threads {
        /// The operating system's text.
        #[source]
        reason: Cause,
    },
    /// A lane's process cannot be started, or cannot work.
    #[error(
        "no lane can run in a process of `{program}`: {reason}; fix that, or let the host run its lanes in its own process",
        program = program.display()
    )]
    Process {
        /// The program.
        program: PathBuf,
        /// Why not.
        #[source]
        reason: Cause,
    },
    /// The host's memory has no room for a lane.
    #[error(
        "a lane's process takes {process} bytes, and {least} with the smallest run: {room}; give the host a larger memory_budget, or fewer lanes"
    )]
    Memory {
        /// Bytes that its process takes.
        process: u64,
        /// Those, and what the smallest run takes.
        least: u64,
        /// What there is.
        #[source]
        room: OutOfBudget,
    },
    /// This process was not started for a lane.
    #[error("this process serves no lane: {reason}; a host starts such processes itself")]
    Lane {
        /// What it found instead.
        #[source]
        reason: Cause,
    },
    /// ONNX Runtime failed at something that does not depend on the model or its inputs.
    #[error("ONNX Runtime could not {doing}: {reason}")]
    Internal {
        /// What it was asked to do.
        doing: &'static str,
        /// ONNX Runtime's own text.
        reason: String,
    },
}

impl EngineError {
    /// The class that callers at the seams see.
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

    /// As an error with this `text` for callers at the seams.
    pub(crate) fn with_message(&self, text: String) -> OpError {
        OpError {
            host_caused: self.is_of_host(),
            ..OpError::new(self.code(), text)
        }
    }

    /// What ONNX Runtime's `reason` for failing to run a model means.
    pub(crate) fn of_run(reason: &str) -> Self {
        let reason = reason.to_owned();
        match lacks_memory(&reason) {
            true => Self::OutOfMemory { reason },
            false => Self::Run { reason },
        }
    }

    /// What ONNX Runtime's `reason` for failing to load a model means.
    pub(crate) fn of_load(reason: &str) -> Self {
        let reason = reason.to_owned();
        match lacks_memory(&reason) {
            true => Self::OutOfMemory { reason },
            false => Self::Model { reason },
        }
    }

    /// Why an operation failed that `interrupt` may have ended: `error`, unless it did.
    pub(crate) fn or_interrupted(self, interrupt: &Interrupt) -> Self {
        interrupt.cause().map_or(self, Self::from)
    }

    pub(crate) fn internal<R>(doing: &'static str) -> impl FnOnce(ort::Error<R>) -> Self {
        move |error| {
            let reason = error.message().to_owned();
            match lacks_memory(&reason) {
                true => Self::OutOfMemory { reason },
                false => Self::Internal { doing, reason },
            }
        }
    }
}

impl EngineError {
    /// Whether it says nothing of the network and its rows: the host ended, lost what it runs networks with, or lacked
    /// memory; or that others waited, who may not wait the next time.
    pub fn is_of_host(&self) -> bool {
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

/// Whether ONNX Runtime's text says that memory could not be had: by the C++ library, its own allocators, or CUDA's.
fn lacks_memory(reason: &str) -> bool {
    let words = [
        "bad_alloc",
        "Failed to allocate memory",
        "bad allocation",
        "out of memory",
        // CUDA's arena at its limit; cuDNN, cuBLAS and cuFFT by the names of their codes.
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
