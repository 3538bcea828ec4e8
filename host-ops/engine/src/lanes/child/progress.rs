use super::super::batch::{Opened, RunEnd, RunError, RunMemory};
use crate::prepared::Loan;
use frostline_tensor::OpError;
use std::time::{Duration, Instant};

/// Progress of a request to the process.
#[derive(Default)]
pub(super) struct Progress {
    /// Time at which the process is given up if it has not answered.
    pub(super) killed_at: Option<Instant>,
    /// True after the process requested the network.
    pub(super) network_requested: bool,
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
