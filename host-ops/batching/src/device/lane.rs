//! State of the lanes.

use super::in_flight::Running;
use super::stages::StageId;
use std::time::Duration;

/// Time for which a lane without a process counts, because lost processes are usually replaced within a second. The
/// remaining lane must not take work like that for which the process was ended.
const REPLACED: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) doing: LaneActivity,
    /// Time at which the process was lost, if it has not been replaced.
    pub(super) lost_at: Option<Duration>,
    /// Last known bytes held by the process.
    pub(super) held: u64,
    /// Bytes held by the process without sessions.
    pub(super) empty: u64,
    /// Open sessions, in order of opening.
    pub(super) sessions: Vec<OpenSession>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenSession {
    pub(super) stage: StageId,
    pub(super) bytes: u64,
    /// Part of `bytes` retained from earlier batches for the next one.
    pub(super) retained_bytes: u64,
    pub(super) last_use: Duration,
}

#[derive(Debug, Default)]
pub(super) enum LaneActivity {
    /// No process exists.
    #[default]
    Absent,
    Idle,
    Running(Running),
    /// Sessions are being closed. Holds the bytes that this frees.
    Closing(u64),
}

impl Lane {
    pub(super) fn session(&self, stage: StageId) -> Option<&OpenSession> {
        self.sessions.iter().find(|open| open.stage == stage)
    }

    /// Returns the bytes that the session of a stage retained for the next batch.
    pub(super) fn cached_bytes(&self, stage: StageId) -> u64 {
        self.session(stage).map_or(0, |open| open.retained_bytes)
    }

    /// True if the lane has a process.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.doing, LaneActivity::Absent)
    }

    /// Returns the time until which the lane counts although its process was lost.
    pub(super) fn counts_until(&self) -> Option<Duration> {
        Some(self.lost_at? + REPLACED)
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.doing, LaneActivity::Idle)
    }

    pub(super) fn running(&self) -> Option<&Running> {
        match &self.doing {
            LaneActivity::Running(running) => Some(running),
            _ => None,
        }
    }
}
