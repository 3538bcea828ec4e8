use super::super::batch::{Opened, RunEnd, RunError, RunMemory};
use crate::prepared::Loan;
use bytes::Bytes;
use frostline_tensor::OpError;
use std::time::{Duration, Instant};

/// Progress of an execution in the process.
#[derive(Default)]
pub(super) struct Progress {
    /// Bytes of the network that the process has not received, and the size of the network, once the process has
    /// requested it. If no bytes remain, further requests are errors.
    pub(super) network: Option<(Bytes, usize)>,
    /// Error of loading the network.
    pub(super) refusal: Option<OpError>,
    /// Keeps a prepared stage in place until the session is open.
    pub(super) lent: Option<Loan>,
    /// The newly opened session, if any.
    pub(super) opened: Option<Opened>,
    /// Start of the execution.
    pub(super) since: Option<Instant>,
    /// Duration of the execution.
    pub(super) time: Option<Duration>,
}

impl Progress {
    /// Records the end of the execution. The output is read later.
    pub(super) fn stop(&mut self) {
        self.time = self.since.map(|since| since.elapsed());
    }

    pub(super) fn end<T>(self, outcome: Result<T, RunError>, memory: Option<RunMemory>) -> RunEnd<T> {
        let running = self.since.map(|since| since.elapsed());
        RunEnd {
            outcome,
            memory,
            opened: self.opened,
            time: self.time.or(running).unwrap_or_default(),
        }
    }
}
