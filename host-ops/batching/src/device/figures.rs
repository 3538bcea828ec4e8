//! What a device tells of itself.

use super::decision::StageFigures;
use super::needs::Missed;
use super::stages::Known;
use super::{Device, Doing};
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

/// Predictions that count.
const KEPT: usize = 1024;

/// Tenants whose device time is kept: beyond these the one that used least is forgotten.
pub(super) const TENANTS: usize = 1024;

/// How good predictions of memory were.
#[derive(Debug, Clone, Default)]
pub struct Predictions {
    errors: VecDeque<f64>,
    /// How often a run took more than was reserved, or failed for want of memory.
    pub misses: u64,
}

/// The error that 95 % of the latest 1,024 predictions kept within: a part of what was measured.
pub type Error95 = f64;

impl Predictions {
    pub(super) fn note(&mut self, missed: Missed) {
        self.misses += u64::from(missed.miss);
        if let Some(error) = missed.error {
            if self.errors.len() == KEPT {
                self.errors.pop_front();
            }
            self.errors.push_back(error);
        }
    }

    /// `None` before anything was predicted from measurements.
    pub fn error_95(&self) -> Option<Error95> {
        let mut sorted: Vec<f64> = self.errors.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
            .get((sorted.len() * 95).div_ceil(100).saturating_sub(1))
            .copied()
    }
}

impl<S: Clone + Eq + Hash> Device<S> {
    /// Works that are here, and the bytes of their batches.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Bytes of the batches of the works that are here.
    pub fn bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Runs and closings that are on their way.
    pub fn working(&self) -> usize {
        let working = |lane: &&super::Lane| matches!(lane.doing, Doing::Running(_) | Doing::Closing(_));
        self.lanes.iter().filter(working).count()
    }

    /// Device time that tenants used, as long as they are remembered.
    pub fn used(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.used.iter().map(|(tenant, time)| (&**tenant, *time))
    }

    /// Rows that wait of each tenant, none of those that have none.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, usize)> {
        self.queue
            .rows()
            .into_iter()
            .map(|(tenant, rows)| (&**tenant, rows))
    }

    /// How good predictions of memory were.
    pub fn predictions(&self) -> &Predictions {
        &self.predictions
    }

    /// What is known of a stage.
    pub fn stage(&self, stage: &S) -> Option<StageFigures> {
        Some(self.figures(self.stages.find(stage)?))
    }

    /// What is known of all stages.
    pub fn stages(&self) -> impl Iterator<Item = (&S, StageFigures)> {
        self.stages
            .iter()
            .map(|known| (&known.stage, self.figures(known)))
    }

    fn figures(&self, known: &Known<S>) -> StageFigures {
        let knee = known.rate.knee(self.rules.tolerance);
        let (fixed, per_row) = known.needs.line();
        StageFigures {
            seconds_per_row: known.rate.per_row(knee),
            knee,
            session: known.needs.session(),
            fixed,
            per_row,
            margin: known.needs.margin(),
            lanes: known.lanes.len(),
            waiting: known.waiting,
        }
    }

    /// Bytes that one row of any stage that work waits for needs at most: less than that must not be left to the lanes.
    pub fn needed(&self) -> u64 {
        let waiting = self.stages.iter().filter(|known| known.waiting > 0);
        waiting.map(|known| known.needs.cold_run(1)).max().unwrap_or(0)
    }
}
