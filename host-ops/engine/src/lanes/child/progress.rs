use super::super::batch::{Opened, RunEnd, RunError, RunMemory};
use crate::prepared::Loan;
use bytes::Bytes;
use frostline_tensor::OpError;
use std::time::{Duration, Instant};

/// Maximum bytes of a network in the window. The process copies each piece before it requests the next one, which
/// keeps large networks from being in memory twice.
const PIECE_BYTES: usize = 16 << 20;

/// Progress of handing a network over to the process.
#[derive(Default)]
pub(super) enum Handover {
    /// The process has not requested the network.
    #[default]
    Unrequested,
    /// These bytes remain, of a network with `total` bytes.
    Remaining { rest: Bytes, total: usize },
    /// Further requests are errors.
    Complete,
}

impl Handover {
    /// Starts to hand over `network`.
    pub(super) fn new(network: Bytes) -> Self {
        Self::Remaining {
            total: network.len(),
            rest: network,
        }
    }

    /// Returns the next piece and the size of the network in bytes. Both are empty if nothing remains.
    pub(super) fn next_piece(&mut self) -> (Bytes, usize) {
        let Self::Remaining { rest, total } = self else {
            return (Bytes::new(), 0);
        };
        let total = *total;
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        if rest.is_empty() {
            *self = Self::Complete;
        }
        (piece, total)
    }
}

/// Progress of a request to the process.
#[derive(Default)]
pub(super) struct Progress {
    /// Time at which the process is given up if it has not answered.
    pub(super) killed_at: Option<Instant>,
    /// Progress of handing over the network.
    pub(super) handover: Handover,
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
