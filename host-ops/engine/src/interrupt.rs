use ort::session::{RunOptions, builder::LoadCanceler};
use parking_lot::Mutex;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Reason for an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterruptCause {
    /// The caller dropped the request.
    #[error("the request was cancelled")]
    Cancelled,
    /// An execution exceeded the time limit.
    #[error("the batch timed out after {limit:?}; send a smaller batch")]
    Deadline {
        /// The time limit.
        limit: Duration,
    },
    /// Loading, checking and optimizing a network exceeded the time limit.
    #[error(
        "opening a session timed out after {limit:?}; send a network with fewer layers, or ask \
         the host's operator for more time"
    )]
    OpenDeadline {
        /// The time limit.
        limit: Duration,
    },
    /// Another tenant waited too long for an engine batch to finish.
    #[error(
        "the work was ended after {limit:?} because another tenant was waiting for it; use an earlier cut or a smaller fixed batch"
    )]
    HeldUp {
        /// Longest time a tenant has to wait for another tenant's work.
        limit: Duration,
    },
    /// The engine is shutting down.
    #[error("the engine is shutting down")]
    Shutdown,
}

/// Ends an operation of a [`Session`](crate::Session) from another thread. Clones are handles to the same
/// interrupt.
///
/// An interrupt is triggered once and stays triggered, so later operations fail immediately. ONNX Runtime
/// checks for the signal between two kernels. On the networks that were measured, this took 6 to 21 ms.
#[derive(Clone, Default)]
pub struct Interrupt {
    state: Arc<Mutex<InterruptState>>,
}

#[derive(Default)]
struct InterruptState {
    cause: Option<InterruptCause>,
    given_up: bool,
    target: Option<Target>,
}

pub(crate) enum Target {
    Load(LoadCanceler),
    Run(Arc<RunOptions>),
    /// Wakes the lane while it waits for an answer. The write never blocks, because a single unread byte is
    /// enough.
    Bell(Arc<UnixStream>),
}

impl Target {
    fn end(&self) {
        let ended = match self {
            Self::Load(canceler) => canceler.cancel(),
            Self::Run(options) => options.terminate(),
            Self::Bell(rope) => {
                drop((&**rope).write(&[1]));
                return;
            }
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "ONNX Runtime did not take the signal to stop");
        }
    }
}

impl Interrupt {
    /// Creates an interrupt that is not triggered.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the current operation and all later ones. Only the first cause is recorded.
    pub fn trigger(&self, cause: InterruptCause) {
        let mut state = self.state.lock();
        if state.cause.is_none() {
            state.cause = Some(cause);
            state.target.iter().for_each(Target::end);
        }
    }

    /// Ends the process of an operation that did not stop in time. An operation in this process continues.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        state.given_up = true;
        state.target.iter().for_each(Target::end);
    }

    /// Returns true if the process of the operation must be ended.
    pub(crate) fn is_given_up(&self) -> bool {
        self.state.lock().given_up
    }

    /// Returns the cause if the interrupt was triggered.
    pub(crate) fn cause(&self) -> Option<InterruptCause> {
        self.state.lock().cause.clone()
    }

    /// Makes `target` the operation to end. Dropping the guard restores the previous target.
    ///
    /// # Errors
    /// Returns the cause if the interrupt was triggered before.
    pub(crate) fn guard(&self, target: Target) -> Result<Guarded<'_>, InterruptCause> {
        let mut state = self.state.lock();
        if let Some(cause) = state.cause.clone() {
            return Err(cause);
        }
        Ok(Guarded {
            before: state.target.replace(target),
            interrupt: self,
        })
    }

    /// Returns true if an operation has registered itself.
    #[cfg(test)]
    pub(crate) fn has_target(&self) -> bool {
        self.state.lock().target.is_some()
    }
}

/// Restores the previous target when dropped.
pub(crate) struct Guarded<'a> {
    interrupt: &'a Interrupt,
    before: Option<Target>,
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        self.interrupt.state.lock().target = self.before.take();
    }
}
