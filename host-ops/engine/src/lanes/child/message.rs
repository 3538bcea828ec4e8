use super::super::batch::{Opened, RunMemory, TensorSpec};
use crate::Device;
use frostline_tensor::{OpError, Stage};
use frostline_walls::Wall;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a lane says to its process. One [`Request::Run`] at a time, and what lies in the window belongs to the message
/// that was sent last.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// Comes first.
    Start(Start),
    /// Run `stage` on the batch in the window, within so many bytes beyond what is held.
    Run {
        stage: Stage,
        batch: TensorSpec,
        reservation: Option<u64>,
    },
    /// The network that was wanted lies in the window.
    Network { bytes: usize },
    /// The network that was wanted lies prepared in the process's folder, until its session is open.
    Prepared,
    /// There is no such network.
    NoNetwork,
    /// Leave the network that lies in the window prepared in the process's folder, holding no more memory than so many bytes.
    Prepare { bytes: usize, most: u64 },
    /// No run follows for now: keep no memory for it.
    Rest,
    /// Close the session of `stage`, if there is one.
    Close { stage: Stage },
    /// End the run.
    End,
}

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// To [`Request::Start`]: it can work; whether the system tells what memory it takes, and which walls it lacks.
    Ready { measures: bool, missing: Vec<Wall> },
    /// To [`Request::Start`]: it cannot.
    Unable { reason: String },
    /// There is no session for the stage; its network is wanted.
    Wanted,
    /// There is a session for the stage, the run begins; how that one was opened, if it was for this run.
    Opened { opened: Option<Opened> },
    /// The run ended well, its output lies in the window.
    Done { output: TensorSpec, memory: Seen },
    /// The run ended with an error.
    Failed { error: OpError, memory: Seen },
    /// The run ended as there was no memory for it within its reservation.
    OutOfMemory { error: OpError, memory: Seen },
    /// To [`Request::Prepare`]: it is done.
    Prepared,
    /// To [`Request::Close`] and [`Request::Rest`]: the bytes that it still holds, and of the host's memory where those are a device's.
    Holds { bytes: Option<u64>, host: Option<u64> },
}

/// What was seen of memory.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// What the run took of what lanes go by: a device's memory, or else the system's.
    pub(super) run: Option<RunMemory>,
    /// Bytes that the process holds of the system's, where `run` is of a device's.
    pub(super) host: Option<u64>,
}

/// How the process works.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) device: Device,
    pub(super) threads: usize,
    pub(super) sessions: usize,
    pub(super) session_bytes: usize,
    /// Whether lanes go by the device's memory, and how much of it an arena may have.
    pub(super) gauged: bool,
    pub(super) arena_bytes: Option<u64>,
    pub(super) address_space: Option<u64>,
    /// The one folder that it opens files in.
    pub(super) folder: Option<PathBuf>,
    /// Of a process that prepares a network there, and ends: it writes to its folder, which others only read.
    pub(super) limits: Option<Limits>,
    /// Whether it must not work without one of its walls.
    pub(super) require_walls: bool,
}

/// What a process may take that is thrown away.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Bytes of memory that only it has.
    pub(super) memory: u64,
    /// Bytes of a file that it writes.
    pub(super) files: u64,
    pub(super) cpu_seconds: u64,
}
