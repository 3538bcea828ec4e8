use std::time::Duration;

/// What lanes do now and have done since they started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneStats {
    /// Submissions that wait.
    pub queued: usize,
    /// Bytes of their batches.
    pub queued_bytes: usize,
    /// Submissions that run.
    pub running: usize,
    /// Submissions that ended well.
    pub jobs_done: u64,
    /// Submissions that ended with an error, were cancelled or ran out of time, those refused by a full queue not
    /// counted.
    pub jobs_failed: u64,
    /// Samples (rows) of those that ended well.
    pub samples_done: u64,
    /// Processes of lanes that were lost with a run in them.
    pub crashes: u64,
    /// Processes of the lanes, by their ids; none when the lanes run in this one.
    pub processes: Vec<u32>,
    /// How long each lane has worked, with what it runs now.
    pub busy: Vec<Duration>,
}
