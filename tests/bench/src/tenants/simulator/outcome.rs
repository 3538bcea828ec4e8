//! What a simulation came to.

use super::scenario::Scenario;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// What a simulation came to; times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// From the beginning to the end of the last job that finished.
    pub(crate) makespan: f64,
    /// Jobs that failed for want of memory.
    pub(crate) failures: usize,
    /// The most bytes that were taken at a time.
    pub(crate) peak_bytes: u64,
    /// Of each job its part of the time that all used, 0 to 1.
    pub(crate) shares: Vec<f64>,
    /// Of each job when it finished; `None` when it did not.
    pub(crate) finished: Vec<Option<f64>>,
}

/// What is noted on the way.
#[derive(Debug, Default)]
pub(super) struct Figures {
    peak: u64,
    device: HashMap<usize, Duration>,
    finished: BTreeMap<usize, Duration>,
    failed: BTreeMap<usize, Duration>,
}

impl Figures {
    /// A lane worked so long for a job.
    pub(super) fn ran(&mut self, job: usize, time: Duration) {
        *self.device.entry(job).or_default() += time;
    }

    /// So many bytes are taken.
    pub(super) fn taken(&mut self, bytes: u64) {
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
