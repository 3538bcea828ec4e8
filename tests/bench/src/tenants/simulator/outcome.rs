//! Outcome of a simulation.

use super::scenario::Scenario;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Outcome of a simulation (times in seconds).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// Time from the start to the end of the last finished job.
    pub(crate) makespan: f64,
    /// Number of jobs that failed because memory was too small.
    pub(crate) failures: usize,
    /// Peak memory in bytes.
    pub(crate) peak_bytes: u64,
    /// Share of device time by job (0 to 1).
    pub(crate) shares: Vec<f64>,
    /// End time by job, or `None` for failed jobs.
    pub(crate) finished: Vec<Option<f64>>,
}

/// Figures recorded during the simulation.
#[derive(Debug, Default)]
pub(super) struct Figures {
    peak: u64,
    device: HashMap<usize, Duration>,
    finished: BTreeMap<usize, Duration>,
    failed: BTreeMap<usize, Duration>,
}

impl Figures {
    /// Records lane time for a job.
    pub(super) fn ran(&mut self, job: usize, time: Duration) {
        *self.device.entry(job).or_default() += time;
    }

    /// Records the memory in use, in bytes.
    pub(super) fn record_memory(&mut self, bytes: u64) {
        self.peak = self.peak.max(bytes);
    }

    pub(super) fn finished(&mut self, job: usize, now: Duration) {
        self.finished.entry(job).or_insert(now);
    }

    pub(super) fn failed(&mut self, job: usize, now: Duration) {
        self.failed.entry(job).or_insert(now);
    }

    pub(super) fn outcome(&self, scenario: &Scenario) -> Outcome {
        let all: Duration = self.device.values().sum();
        let share = |job| {
            let time = self.device.get(&job).copied().unwrap_or_default();
            time.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE)
        };
        let finished = |job| self.finished.get(&job).map(Duration::as_secs_f64);
        let jobs = 0..scenario.jobs.len();
        Outcome {
            makespan: self.finished.values().max().map_or(0.0, Duration::as_secs_f64),
            failures: self.failed.len(),
            peak_bytes: self.peak,
            shares: jobs.clone().map(share).collect(),
            finished: jobs.map(finished).collect(),
        }
    }
}
