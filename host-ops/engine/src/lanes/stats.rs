use std::time::Duration;

/// Current load of the lanes and totals since the start.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LaneStats {
    /// Waiting submissions.
    pub queued: usize,
    /// Size of their batches in bytes.
    pub queued_bytes: usize,
    /// Running submissions.
    pub running: usize,
    /// Successful submissions.
    pub jobs_done: u64,
    /// Failed, cancelled and expired submissions, without those refused by a full queue.
    pub jobs_failed: u64,
    /// Samples (rows) of the successful submissions.
    pub samples_done: u64,
    /// Successful engine batches.
    pub runs: u64,
    /// Rows in these batches without padding.
    pub rows: u64,
    /// Batches with rows of several submissions.
    pub runs_joined: u64,
    /// Batches repeated with fewer rows or more memory after running out of memory.
    pub out_of_memory: u64,
    /// Batches that used more memory than reserved, ran out of memory, or ended in an abort that was
    /// attributed to memory.
    pub memory_misses: u64,
    /// 95th percentile of the error in recent predictions of batch memory, as a fraction of the measured
    /// value. `None` without predictions.
    pub memory_error: Option<f64>,
    /// Device memory available to lanes, in bytes. `None` if lanes are not bounded by device memory. If it is
    /// set, the next two values describe device memory, otherwise host memory.
    pub device_budget: Option<u64>,
    /// Bytes that the lanes' processes hold between batches, if the system reports them.
    pub memory_held: u64,
    /// Bytes reserved for lanes: the held bytes and the expected needs of running batches.
    pub memory_reserved: u64,
    /// Opened sessions.
    pub sessions_opened: u64,
    /// Sessions closed to free memory.
    pub sessions_closed: u64,
    /// Processes lost during an engine batch, or ended afterwards because they exceeded a limit.
    pub crashes: u64,
    /// Processes ended because they exceeded the reserved memory or the number of threads, including those
    /// that prepare networks.
    pub over_limit: u64,
    /// Engine batches and preparations that were ended because another tenant waited.
    pub held_up: u64,
    /// Quarantines of models after crashes.
    pub quarantines: u64,
    /// Process ids of the lanes. Empty if the lanes run in this process.
    pub processes: Vec<u32>,
    /// Working time per lane, including the current batch.
    pub busy: Vec<Duration>,
    /// Recent device time by tenant.
    pub device_time: Vec<(String, Duration)>,
    /// Longest wait for a lane in the last one to two minutes by tenant, with submissions that still wait.
    pub waited: Vec<(String, Duration)>,
    /// Waiting rows by tenant. Tenants without waiting rows are omitted.
    pub waiting: Vec<(String, usize)>,
    /// Number of busy lanes by tenant. Batches with rows of several tenants count for each tenant.
    pub holding: Vec<(String, usize)>,
}
