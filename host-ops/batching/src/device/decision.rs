//! Decisions of the device and outcomes of batches.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Next step of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<S> {
    /// An idle lane must execute this batch; [`Device::ended`](super::Device::ended) must follow.
    Run(Run<S>),
    /// This stage must be prepared without a lane; [`Device::prepared`](super::Device::prepared) must follow.
    Prepare {
        /// Index of the preparation, less than [`DeviceRules::preparations`](super::DeviceRules).
        slot: usize,
        /// Stage to prepare.
        stage: S,
        /// The tenant that is charged.
        tenant: Arc<str>,
    },
    /// An idle lane must close sessions to free memory; [`Device::closed`](super::Device::closed) must
    /// follow.
    Close {
        /// Index of the lane.
        lane: usize,
        /// Stages of the sessions.
        stages: Vec<S>,
    },
    /// The smallest batch of this work item exceeds the available memory. The item was removed.
    Refuse {
        /// Id of the work item.
        work: u64,
        /// Bytes required.
        needs: u64,
        /// Maximum bytes available.
        most: u64,
    },
    /// The caller must wait for the next event or the time `until`.
    Wait {
        /// Time of the next call if no event occurs.
        until: Option<Duration>,
        /// Bytes missing for the next work item; 0 if memory is not the reason.
        lacking: u64,
    },
}

/// An engine batch for a stage on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<S> {
    /// Index of the lane.
    pub lane: usize,
    /// Stage to execute.
    pub stage: S,
    /// True if the lane must open a session first.
    pub cold: bool,
    /// Idle sessions of the lane to close first.
    pub close: Vec<S>,
    /// Rows of the batch, in this order.
    pub parts: Vec<Part>,
    /// Rows of the batch, including padding at the end.
    pub rows: usize,
    /// Bytes to reserve in addition to the bytes that the lane holds after closing the sessions.
    pub bytes: u64,
}

/// Range of rows in a work item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Id of the work item.
    pub work: u64,
    /// Row numbers within the work item.
    pub rows: Range<usize>,
}

/// Outcome of one part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Id of the work item.
    pub work: u64,
    /// Row numbers within the work item.
    pub rows: Range<usize>,
    /// Outcome of these rows.
    pub outcome: PartOutcome,
}

/// Outcome of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartOutcome {
    /// The rows are computed.
    Done {
        /// True if the work item is complete. The item was removed.
        last: bool,
    },
    /// The rows wait for another execution.
    Again,
    /// The work item failed and has been removed.
    Failed,
    /// The batch ran out of memory with all available memory. The work item was removed.
    Refused {
        /// Lower bound of the bytes required.
        needs: u64,
        /// Bytes available.
        most: u64,
    },
    /// The work item had already been removed.
    Dropped,
}

/// Resource that a work item waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The start of the stage's preparation.
    Preparation,
    /// The end of the stage's preparation.
    Prepared,
    /// A lane.
    Lane,
}
