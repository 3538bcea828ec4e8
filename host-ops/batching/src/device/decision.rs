//! What a device decides.

use std::ops::Range;
use std::time::Duration;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<S> {
    /// An idle lane is to run this; [`Device::ended`](super::Device::ended) must follow.
    Run(Run<S>),
    /// An idle lane is to close sessions, since their memory is needed elsewhere; [`Device::closed`](super::Device::closed) must follow.
    Close {
        /// The lane.
        lane: usize,
        /// The sessions' stages.
        stages: Vec<S>,
    },
    /// Not even one row of this work can ever fit; it is not known here any more.
    Refuse {
        /// The work.
        work: u64,
        /// Bytes that it needs.
        needs: u64,
        /// Bytes that there are at most.
        most: u64,
    },
    /// Nothing, until something comes, ends or is given back, or the time comes.
    Wait {
        /// When to ask again, if nothing else happens.
        until: Option<Duration>,
        /// Bytes that whoever is next lacks.
        lacking: u64,
    },
}

/// One batch of a stage on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<S> {
    /// The lane.
    pub lane: usize,
    /// The stage.
    pub stage: S,
    /// Whether the lane has no session for the stage yet.
    pub cold: bool,
    /// Idle sessions that the lane is to close first.
    pub close: Vec<S>,
    /// What the batch is made of, in this order.
    pub parts: Vec<Part>,
    /// Rows of the batch; those beyond the parts' rows are padding.
    pub rows: usize,
    /// Bytes to reserve beyond what the lane holds when the sessions are closed.
    pub bytes: u64,
}

/// Some rows of a work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The work.
    pub work: u64,
    /// Which of its rows.
    pub rows: Range<usize>,
}

/// What became of a part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The work.
    pub work: u64,
    /// Which of its rows.
    pub rows: Range<usize>,
    /// What became of them.
    pub fate: PartOutcome,
}

/// What became of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartOutcome {
    /// They are done.
    Done {
        /// And all others of their work are, too: it is not known here any more.
        last: bool,
    },
    /// They will run again.
    Again,
    /// They failed and with them their work, which is not known here any more.
    Failed,
    /// Memory does not suffice for a single run, though it had all there is; the work is not known here any more.
    Refused {
        /// Bytes that it needs at least.
        needs: u64,
        /// Bytes that there are at most.
        most: u64,
    },
    /// Nobody waits for them any more.
    Dropped,
}

/// What is known of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageFigures {
    /// Seconds of a row in a batch of the knee; `None` before the first run.
    pub seconds_per_row: Option<f64>,
    /// The least batch whose rate is as good as the best, as far as is known.
    pub knee: usize,
    /// Bytes of a session.
    pub session: u64,
    /// Bytes of a run without its rows.
    pub fixed: u64,
    /// Bytes of each row.
    pub per_row: u64,
    /// What is reserved on top, as a part of what a run is expected to take.
    pub margin: f64,
    /// Lanes that have a session.
    pub lanes: usize,
    /// Rows that wait.
    pub waiting: usize,
}
