use crate::Device;
use frostline_tensor::{DType, OpError, Shape, Stage, Tensor};
use serde::{Deserialize, Serialize};

/// What a lane says to its process. One [`Request::Run`] at a time, and what lies in the window belongs to the message
/// that was sent last.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// Comes first.
    Start(Start),
    /// Run `stage` on the batch in the window.
    Run { stage: Stage, batch: TensorSpec },
    /// The network that was wanted lies in the window.
    Network { bytes: usize },
    /// There is no such network.
    NoNetwork,
    /// No run follows for now: keep no memory for it.
    Rest,
    /// End the run.
    End,
}

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// To [`Request::Start`]: it can work.
    Ready,
    /// To [`Request::Start`]: it cannot.
    Unable { reason: String },
    /// There is no session for the stage; its network is wanted.
    Wanted,
    /// There is a session for the stage, the run begins.
    Opened,
    /// The run ended well, its output lies in the window.
    Done { output: TensorSpec },
    /// The run ended with an error.
    Failed { error: OpError },
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

/// Type and shape of the tensor in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TensorSpec {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl TensorSpec {
    pub(super) fn of(tensor: &Tensor) -> Self {
        Self {
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
        }
    }
}
