use super::super::batch::{Opened, RunMemory, TensorSpec};
use crate::Device;
use frostline_tensor::{OpError, Stage};
use serde::{Deserialize, Serialize};

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
    /// There is no such network.
    NoNetwork,
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
    /// To [`Request::Start`]: it can work; whether the system tells what memory it takes.
    Ready { measures: bool },
    /// To [`Request::Start`]: it cannot.
    Unable { reason: String },
    /// There is no session for the stage; its network is wanted.
    Wanted,
    /// There is a session for the stage, the run begins; how that one was opened, if it was for this run.
    Opened { opened: Option<Opened> },
    /// The run ended well, its output lies in the window.
    Done {
        output: TensorSpec,
        memory: Option<RunMemory>,
    },
    /// The run ended with an error.
    Failed {
        error: OpError,
        memory: Option<RunMemory>,
    },
    /// The run ended as there was no memory for it within its reservation.
    OutOfMemory {
        error: OpError,
        memory: Option<RunMemory>,
    },
    /// To [`Request::Close`] and [`Request::Rest`]: the bytes that it still holds.
    Holds { bytes: Option<u64> },
}

/// How the process works.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) device: Device,
    pub(super) threads: usize,
    pub(super) sessions: usize,
    pub(super) session_bytes: usize,
    pub(super) address_space: Option<u64>,
}
