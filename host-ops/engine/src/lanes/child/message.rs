use super::super::batch::{Opened, RunMemory};
use crate::tensor_spec::TensorSpec;
use crate::{CudaOptions, Device};
use frostline_tensor::{OpError, Stage};
use frostline_walls::{Wall, one_line};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum length in bytes of a text of the process. Errors of ONNX Runtime about tensors with many
/// dimensions have up to about 2 KiB.
const TEXT_BYTES: usize = 4096;

/// Messages from a lane to its process. A new [`LaneRequest::Run`] is sent after the previous one was answered.
/// The content of the window belongs to the latest message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LaneRequest {
    /// The first message.
    Start(Start),
    Run(RunRequest),
    /// The window contains the first or next `piece` bytes of the requested network, which has `total` bytes.
    Network {
        piece: usize,
        total: usize,
    },
    /// The requested network is prepared in the process's folder, until the session is open.
    Prepared,
    /// The requested network is not available.
    NoNetwork,
    /// Prepare the network in the window in the process's folder, with a total memory of up to `max_bytes` bytes.
    Prepare {
        bytes: usize,
        max_bytes: u64,
    },
    /// Release the memory that the next batch would reuse, because no work is waiting.
    Rest,
    /// Close the session of `stage` if it is open.
    Close {
        stage: Stage,
    },
    /// End the current execution.
    End,
}

/// Execution of `stage` on the batch in the window. `reservation` limits the additional memory in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunRequest {
    pub(super) stage: Stage,
    pub(super) batch: TensorSpec,
    pub(super) reservation: Option<u64>,
}

/// Answers of the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LaneAnswer {
    /// Answer to [`LaneRequest::Start`] if the process can work. `measures` is true if the system reports memory
    /// usage, and `missing` contains the missing walls.
    Ready {
        measures: bool,
        missing: Vec<Wall>,
    },
    /// Answer to [`LaneRequest::Start`] if the process cannot work.
    Unable {
        reason: String,
    },
    /// Requests the network of the stage, which has no session, or the next piece of this network.
    Wanted,
    /// The session is ready and the execution starts. `opened` is set if the session was opened for this
    /// batch.
    Opened {
        opened: Option<Opened>,
    },
    /// The execution succeeded and the output is in the window.
    Done {
        output: TensorSpec,
        memory: MemoryReport,
    },
    Failed {
        error: OpError,
        memory: MemoryReport,
    },
    /// The execution exceeded the reservation.
    OutOfMemory {
        error: OpError,
        memory: MemoryReport,
    },
    /// Answer to [`LaneRequest::Prepare`] on success.
    Prepared,
    /// Answer to [`LaneRequest::Close`] and [`LaneRequest::Rest`]: the held bytes, which are device memory if `host`
    /// contains the bytes of host memory.
    Holds {
        bytes: Option<u64>,
        host: Option<u64>,
    },
}

impl LaneAnswer {
    /// Shortens texts and removes control characters, so that a lost lane cannot forge lines of the host's log.
    pub(super) fn in_lines(self) -> Self {
        match self {
            Self::Unable { reason } => Self::Unable {
                reason: one_line(&reason, TEXT_BYTES),
            },
            Self::Failed { error, memory } => Self::Failed {
                error: in_line(error),
                memory,
            },
            Self::OutOfMemory { error, memory } => Self::OutOfMemory {
                error: in_line(error),
                memory,
            },
            other => other,
        }
    }
}

fn in_line(error: OpError) -> OpError {
    OpError {
        message: one_line(&error.message, TEXT_BYTES),
        ..error
    }
}

/// Memory measurements.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct MemoryReport {
    /// Memory of the execution: device memory if it bounds the lanes, otherwise host memory.
    pub(super) run: Option<RunMemory>,
    /// Bytes of host memory that the process holds, if `run` contains device memory.
    pub(super) host: Option<u64>,
}

/// Settings of the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) device: Device,
    pub(super) threads: usize,
    pub(super) sessions: usize,
    pub(super) session_bytes: usize,
    /// True if device memory bounds the lanes. `arena_bytes` limits the sessions' arenas on the device.
    pub(super) gauged: bool,
    pub(super) arena_bytes: Option<u64>,
    pub(super) cuda: CudaOptions,
    pub(super) address_space: Option<u64>,
    /// Hard limit on private memory in bytes (`RLIMIT_DATA`).
    pub(super) data_bytes: Option<u64>,
    /// The only folder in which the process opens files.
    pub(super) folder: Option<PathBuf>,
    /// Limits for preparing a network in a disposable process. With limits, the process can write to the
    /// folder. Otherwise the folder is read-only.
    pub(super) limits: Option<Limits>,
    pub(super) require_walls: bool,
}

/// Resource limits of a disposable process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Bytes of private memory.
    pub(super) memory: u64,
    /// Size of each written file in bytes.
    pub(super) files: u64,
    pub(super) cpu_seconds: u64,
}
