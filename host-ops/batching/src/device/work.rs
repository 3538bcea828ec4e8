//! What is asked of the device, and within what it decides.

use frostline_tensor::RunTerms;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// How long a run takes at most, where one row allows it: short beside what people wait for, long beside what a run costs by itself.
pub const QUANTUM: Duration = Duration::from_millis(500);

/// How a device works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceRules {
    /// Lanes, of which each runs one batch at a time.
    pub lanes: usize,
    /// How long a run takes at most, where one row allows it; and how long work may be overtaken.
    pub quantum: Duration,
    /// A larger batch is not worth it that gains less than this part of the best rate.
    pub tolerance: f64,
    /// Rows that a run has at most.
    pub most_rows: usize,
    /// Sessions that a lane keeps at most, whatever memory there is.
    pub sessions_per_lane: usize,
    /// Works that may be here, of all tenants together.
    pub works: usize,
    /// Bytes of their batches.
    pub bytes: usize,
    /// Whether a session keeps what its runs took until it is closed, for its next ones, as a GPU's arena does. One that lacked memory is
    /// closed then: its arena may be in pieces that are of no use.
    pub keeps: bool,
    /// Rows of every run, as far as memory allows: fewer are padded. For devices that plan kernels anew when the number of rows changes.
    /// `None` runs as many rows as there are, in the most efficient batch.
    pub padded_rows: Option<usize>,
}

impl DeviceRules {
    /// So many lanes, quanta of [`QUANTUM`], batches within 2 % of the best rate and of 1,024 rows at most.
    pub fn for_lanes(lanes: usize) -> Self {
        Self {
            lanes,
            quantum: QUANTUM,
            tolerance: 0.02,
            most_rows: 1024,
            sessions_per_lane: 64,
            works: 1024,
            bytes: 1 << 30,
            keeps: false,
            padded_rows: None,
        }
    }
}

/// A batch that is to go through a stage.
#[derive(Debug, Clone)]
pub struct Work<S> {
    /// What it is known by; larger than any before.
    pub id: u64,
    /// Whose it is.
    pub tenant: Arc<str>,
    /// The tenant's part of the device's time beside that of others; 0 counts as 1.
    pub weight: u32,
    /// Which of the tenant's jobs it belongs to, and on what terms it runs.
    pub terms: RunTerms,
    /// The stage.
    pub stage: S,
    /// Rows of the batch.
    pub rows: NonZeroUsize,
    /// Bytes of the batch.
    pub bytes: usize,
    /// What the stage may take, where nothing is known of it yet.
    pub guess: MemoryEstimate,
}

/// What a stage may take before anything was measured: bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryEstimate {
    /// An open session, and opening it.
    pub session: u64,
    /// A run, whatever rows it has.
    pub fixed: u64,
    /// Each of its rows.
    pub per_row: u64,
}

/// Memory that lanes could have, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Now, beyond what they hold and what their runs have reserved.
    pub now: u64,
    /// All together at most, were nothing else held.
    pub most: u64,
}

/// What a lane's process was seen to take; `None` where that cannot be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// The most bytes that it held since it began what it reports of.
    pub peak: Option<u64>,
    /// Bytes that it holds now.
    pub held: Option<u64>,
    /// Bytes that it held before and that no session needs: a run may have taken so many more than the peak shows.
    pub spare: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    /// All its rows are there.
    Done {
        /// Time of the run alone, without that of opening a session.
        time: Duration,
        /// What it took since the session was there.
        taken: Taken,
    },
    /// Memory did not suffice, be it to open the session or to run.
    OutOfMemory {
        /// Bytes that the lane holds now, if that can be seen.
        held: Option<u64>,
    },
    /// It did not begin: what it was to reserve was not there any more.
    OutOfBudget,
    /// The network, or a batch, is at fault.
    Failed,
    /// The lane's process was lost; [`Device::started`](super::Device::started) must follow when there is another.
    Lost,
    /// Likewise, and somebody killed it who was not the host: nobody in it is at fault.
    Killed,
    /// Likewise, and it ended itself as native code does that is refused memory: it may have wanted more than it had
    /// ([`Device::may_lack`](super::Device::may_lack)).
    Aborted,
    /// It was ended since nobody waits for it any more.
    Cancelled,
}

impl End {
    /// Whether the lane has no process any more.
    pub(super) fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::Killed | Self::Aborted)
    }
}

/// A work that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the queue of the lanes is full: of {works} jobs with {bytes} bytes that it may hold, this tenant's share is one of {tenants}; it has \
     {own_works} jobs with {own_bytes} bytes there, and {more} bytes more go beyond it; try again when some are done"
)]
pub struct QueueFull {
    /// Works that may be there.
    pub works: usize,
    /// Bytes that they may have.
    pub bytes: usize,
    /// Tenants that share it, this one included.
    pub tenants: usize,
    /// Works of the tenant.
    pub own_works: usize,
    /// Their bytes.
    pub own_bytes: usize,
    /// Bytes of the work that was not taken.
    pub more: usize,
}
