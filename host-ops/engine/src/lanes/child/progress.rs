use super::super::batch::{Opened, RunEnd, RunError, RunMemory};
use crate::prepared::Loan;
use frostline_tensor::OpError;
use std::time::{Duration, Instant};

/// Where a run stands.
#[derive(Default)]
pub(super) struct Progress {
    /// Since the process was told to end it: when it is killed.
    pub(super) killed_at: Option<Instant>,
    /// The network was asked for.
    pub(super) wanted: bool,
    /// Why it was not given.
    pub(super) refusal: Option<OpError>,
    /// What keeps it where it is until it is open.
    pub(super) lent: Option<Loan>,
    /// The session that was opened.
    pub(super) opened: Option<Opened>,
    /// Since when the time of the run counts.
    pub(super) since: Option<Instant>,
    /// What it was.
    pub(super) time: Option<Duration>,
}

impl Progress {
    /// The run is done: what follows is no part of its time.
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
