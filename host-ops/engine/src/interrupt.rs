use ort::session::{RunOptions, builder::LoadCanceler};
use parking_lot::Mutex;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Why an operation was ended before it was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterruptCause {
    /// Nobody waits for the result any more.
    #[error("the run was cancelled")]
    Cancelled,
    /// A run took longer than it may.
    #[error("the run timed out after {limit:?}; send a smaller batch")]
    Deadline {
        /// The longest it may take.
        limit: Duration,
    },
    /// Reading, checking and optimizing a network took longer than it may.
    #[error(
        "opening a session timed out after {limit:?}; send a network with fewer layers, or ask \
         the host's operator for more time"
    )]
    OpenDeadline {
        /// The longest it may take.
        limit: Duration,
    },
    /// A run kept another tenant waiting.
    #[error(
        "the run was ended after {limit:?}: another tenant was waiting for a lane; take an earlier cut, or a smaller fixed batch"
    )]
    HeldUp {
        /// How long another may be kept waiting by one run.
        limit: Duration,
    },
    /// The engine is shutting down.
    #[error("the engine is shutting down")]
    Shutdown,
}

/// Ends an operation of a [`Session`](crate::Session) from another thread. Clones are handles to the same interrupt.
///
/// It is triggered once and stays triggered: an operation that starts later fails at once. A running kernel is not torn
/// apart: ONNX Runtime looks for the signal between two kernels (6-21 ms later on the networks measured).
#[derive(Clone, Default)]
pub struct Interrupt {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cause: Option<InterruptCause>,
    target: Option<Target>,
}

/// What an interrupt ends.
pub(crate) enum Target {
    Load(LoadCanceler),
    Run(Arc<RunOptions>),
    /// A byte there wakes the lane whose process runs it. It never waits: one unread byte is as good as two.
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
    /// One that is not triggered.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the operation that uses this interrupt, and every later one. Only the first cause counts.
    pub fn trigger(&self, cause: InterruptCause) {
        let mut state = self.state.lock();
        if state.cause.is_none() {
            state.cause = Some(cause);
            state.target.iter().for_each(Target::end);
        }
    }

    /// Why it was triggered, once it was.
    pub(crate) fn cause(&self) -> Option<InterruptCause> {
        self.state.lock().cause.clone()
    }

    /// Makes `target` what the interrupt ends for as long as the guard lives, in place of what it ended before.
    ///
    /// # Errors
    /// Why it was triggered before.
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

    /// Whether an operation is under way that the interrupt would end.
    #[cfg(test)]
    pub(crate) fn has_target(&self) -> bool {
        self.state.lock().target.is_some()
    }
}

/// While this lives, the interrupt can end the operation.
pub(crate) struct Guarded<'a> {
    interrupt: &'a Interrupt,
    before: Option<Target>,
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        self.interrupt.state.lock().target = self.before.take();
    }
}
