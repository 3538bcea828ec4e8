//! What lanes hold and do.

use super::decision::Part;
use super::stages::StageId;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) doing: Doing,
    /// Bytes that it holds, as far as is known.
    pub(super) held: u64,
    /// Bytes that it holds without a session.
    pub(super) empty: u64,
    /// The one used longest ago first.
    pub(super) sessions: Vec<Open>,
}

/// An open session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) stage: StageId,
    pub(super) bytes: u64,
    /// Of these what its runs left there, for the next one.
    pub(super) kept: u64,
    /// When it was used last.
    pub(super) used: Duration,
}

#[derive(Debug, Default)]
pub(super) enum Doing {
    /// There is no process.
    #[default]
    Absent,
    Nothing,
    Running(Running),
    /// Closing sessions of so many bytes.
    Closing(u64),
}

/// A run on its way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) stage: StageId,
    pub(super) parts: Vec<Part>,
    pub(super) rows: usize,
    /// Bytes that it reserved, and of those the ones for the run alone.
    pub(super) bytes: u64,
    pub(super) for_run: u64,
    /// Whether there could not be more.
    pub(super) all: bool,
    /// Bytes that the lane holds while the run begins, once its session is open.
    pub(super) before: u64,
    pub(super) cold: bool,
    pub(super) open: bool,
    pub(super) since: Duration,
    /// What it is taken to last.
    pub(super) guess: Duration,
    pub(super) payers: Vec<Payer>,
}

/// Who pays for how many rows of a run.
#[derive(Debug, Clone)]
pub(super) struct Payer {
    pub(super) tenant: Arc<str>,
    pub(super) line: Arc<str>,
    pub(super) rows: usize,
}

impl Running {
    /// Somebody's part of `time`, by rows; padding is everybody's.
    pub(super) fn part_of(&self, payer: &Payer, time: Duration) -> Duration {
        let rows: usize = self.payers.iter().map(|payer| payer.rows).sum();
        time.mul_f64(payer.rows as f64 / rows.max(1) as f64)
    }
}

impl Lane {
    /// The session of a stage.
    pub(super) fn session(&self, stage: StageId) -> Option<&Open> {
        self.sessions.iter().find(|open| open.stage == stage)
    }

    /// What the session of a stage keeps for its next run.
    pub(super) fn cached_bytes(&self, stage: StageId) -> u64 {
        self.session(stage).map_or(0, |open| open.kept)
    }

    /// Whether it has a process.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.doing, Doing::Absent)
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.doing, Doing::Nothing)
    }

    pub(super) fn running(&self) -> Option<&Running> {
        match &self.doing {
            Doing::Running(running) => Some(running),
            _ => None,
        }
    }
}
