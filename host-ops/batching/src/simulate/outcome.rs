//! What a simulation came to.

use super::scenario::Scenario;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// What a simulation came to; times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: String,
    /// From the beginning to the end of the last job that finished.
    pub makespan: f64,
    /// Jobs that failed for want of memory.
    pub failures: usize,
    /// The longest time from when a request was sent until its first sample ran.
    pub longest_wait: f64,
    /// Runs of the lanes.
    pub runs: u64,
    /// The most bytes that were taken at a time.
    pub peak_bytes: u64,
    /// Tenants by name.
    pub tenants: Vec<TenantOutcome>,
}

/// What a tenant got; times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantOutcome {
    /// Its name.
    pub tenant: String,
    /// Its weight.
    pub weight: u32,
    /// Time on the lanes.
    pub device: f64,
    /// Its part of the time that all used, 0 to 1.
    pub share: f64,
    /// When its last job finished; `None` when none did.
    pub finished: Option<f64>,
    /// Jobs that failed.
    pub failed: usize,
}

/// What is noted on the way.
#[derive(Debug)]
pub(super) struct Figures {
    tenants: Vec<String>,
    posted: HashMap<u64, Duration>,
    longest_wait: Duration,
    runs: u64,
    peak: u64,
    device: BTreeMap<usize, Duration>,
    finished: BTreeMap<usize, Duration>,
    failed: BTreeMap<usize, Duration>,
}

impl Figures {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            tenants: scenario.jobs.iter().map(|job| job.tenant.clone()).collect(),
            posted: HashMap::new(),
            longest_wait: Duration::ZERO,
            runs: 0,
            peak: 0,
            device: BTreeMap::new(),
            finished: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    pub(super) fn posted(&mut self, request: u64, now: Duration) {
        self.posted.insert(request, now);
    }

    /// Samples of a request run; only the first time counts.
    pub(super) fn begun(&mut self, request: u64, now: Duration) {
        if let Some(posted) = self.posted.remove(&request) {
            self.longest_wait = self.longest_wait.max(now.saturating_sub(posted));
        }
    }

    /// A lane worked so long for a job.
    pub(super) fn ran(&mut self, job: usize, time: Duration) {
        *self.device.entry(job).or_default() += time;
    }

    pub(super) fn run(&mut self) {
        self.runs += 1;
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
        let mut names: Vec<&String> = self.tenants.iter().collect();
        names.sort_unstable();
        names.dedup();
        let of = |name: &String| {
            let jobs: Vec<usize> = (0..self.tenants.len())
                .filter(|job| self.tenants.get(*job) == Some(name))
                .collect();
            let device: Duration = jobs.iter().filter_map(|job| self.device.get(job)).sum();
            let first = jobs.first().and_then(|job| scenario.jobs.get(*job));
            TenantOutcome {
                tenant: name.clone(),
                weight: first.map_or(1, |job| job.weight),
                device: device.as_secs_f64(),
                share: device.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE),
                finished: jobs
                    .iter()
                    .filter_map(|job| self.finished.get(job))
                    .max()
                    .map(Duration::as_secs_f64),
                failed: jobs.iter().filter(|job| self.failed.contains_key(job)).count(),
            }
        };
        Outcome {
            policy: scenario.policy.to_string(),
            makespan: self.finished.values().max().map_or(0.0, Duration::as_secs_f64),
            failures: self.failed.len(),
            longest_wait: self.longest_wait.as_secs_f64(),
            runs: self.runs,
            peak_bytes: self.peak,
            tenants: names.into_iter().map(of).collect(),
        }
    }
}
