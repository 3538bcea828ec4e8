//! Input of the device, such as rules, work items, available memory and results of lanes.

use frostline_tensor::ExecutionTerms;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// Time slice, the maximum duration of engine batches with several rows, and the time during which waiting work is
/// overtaken. Short compared with waits that users notice, and long compared with the fixed cost of an execution.
pub const TIME_SLICE: Duration = Duration::from_millis(500);

/// Configuration of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceRules {
    /// Number of lanes. Each lane executes one batch at a time.
    pub lanes: usize,
    /// Maximum number of open sessions per lane, regardless of memory.
    pub sessions_per_lane: usize,
    /// Maximum number of work items in the queue, summed over the tenants.
    pub works: usize,
    /// Maximum bytes of the queued work items.
    pub bytes: usize,
    /// True if a session retains the memory of earlier batches until closed, like the arena of a GPU. After
    /// running out of memory, such a session is closed, because the arena may be fragmented.
    pub keeps: bool,
    /// Number of rows per batch if memory allows; smaller batches are padded. Use this for devices that plan
    /// kernels again when the number of rows changes. With `None`, batches contain the waiting rows, up to
    /// the efficient batch.
    pub padded_rows: Option<usize>,
    /// Maximum number of stages prepared at the same time. Lanes open a stage after its preparation. 0 if
    /// stages need no preparation.
    pub preparations: usize,
}

impl DeviceRules {
    /// Returns rules for `lanes` lanes.
    pub fn for_lanes(lanes: usize) -> Self {
        Self {
            lanes,
            sessions_per_lane: 64,
            works: 1024,
            bytes: 1 << 30,
            keeps: false,
            padded_rows: None,
            preparations: 0,
        }
    }
}

/// A work item. Contains rows for a stage.
#[derive(Debug, Clone)]
pub struct Work<S> {
    /// Identifier; larger than all earlier ones.
    pub id: u64,
    /// Tenant that sent the rows.
    pub tenant: Arc<str>,
    /// Weight of the tenant relative to other tenants; 0 counts as 1.
    pub weight: u32,
    /// Job of the tenant and terms of execution.
    pub terms: ExecutionTerms,
    /// Stage to execute.
    pub stage: S,
    /// Number of rows.
    pub rows: NonZeroUsize,
    /// Size of the rows in bytes.
    pub bytes: usize,
    /// Memory estimate of the stage for use without measurements.
    pub guess: MemoryEstimate,
}

/// Estimated memory of a stage, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryEstimate {
    /// Bytes required to open and to hold a session.
    pub session: u64,
    /// Fixed bytes per execution.
    pub fixed: u64,
    /// Additional bytes per row.
    pub per_row: u64,
}

/// Memory available to the lanes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneMemory {
    /// Free memory, excluding memory held or reserved by lanes.
    pub free: u64,
    /// Maximum for all lanes together, if no other memory were in use.
    pub limit: u64,
}

/// Memory usage of a lane's process; `None` if not measurable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUsage {
    /// Peak bytes held during the reported step.
    pub peak: Option<u64>,
    /// Bytes held now.
    pub held: Option<u64>,
    /// Bytes held before the step that belong to no session. The step can have reused these bytes without
    /// increasing the peak.
    pub spare: u64,
}

/// Result of an execution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BatchEnd {
    /// All rows are computed.
    Done {
        /// Duration of the execution, excluding the time to open a session.
        time: Duration,
        /// Memory usage since the session was open.
        taken: MemoryUsage,
    },
    /// Not enough memory to open the session or to execute the batch.
    OutOfMemory {
        /// Bytes that the lane holds now, if known.
        held: Option<u64>,
    },
    /// The batch did not start because the memory to reserve was no longer available.
    OutOfBudget,
    /// The execution failed because of the network or the input.
    Failed,
    /// The lane's process was lost; [`Device::started`](super::Device::started) must follow after a restart.
    Lost,
    /// Same as `Lost`, but the process was killed from outside, so no work item is to blame.
    Killed,
    /// Same as `Lost`, but the process aborted, as native code does after a failed allocation. Memory may
    /// have been insufficient ([`Device::may_lack`](super::Device::may_lack)).
    Aborted,
    /// The execution stopped because all work items in the batch had been removed.
    Cancelled,
}

impl BatchEnd {
    /// True if the lane has no process anymore.
    pub(super) fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::Killed | Self::Aborted)
    }
}

/// Rejection of a work item because the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the queue of the lanes is full: its limits of {works} jobs and {bytes} bytes are divided among {tenants} tenants; this tenant has \
     {own_works} jobs with {own_bytes} bytes in the queue, and {more} more bytes do not fit; try again when some jobs have finished"
)]
pub struct QueueFull {
    /// Maximum number of work items.
    pub works: usize,
    /// Maximum number of bytes.
    pub bytes: usize,
    /// Number of tenants that share the queue, including this one.
    pub tenants: usize,
    /// Queued work items of the tenant.
    pub own_works: usize,
    /// Bytes queued by the tenant.
    pub own_bytes: usize,
    /// Bytes of the rejected work item.
    pub more: usize,
}
