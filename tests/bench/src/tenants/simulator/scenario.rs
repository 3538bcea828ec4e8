//! Scenarios to simulate.

use std::fmt::Display;
use std::time::Duration;

/// A device and shared jobs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    /// Memory in bytes for all engine batches and sessions.
    pub(crate) memory_bytes: u64,
    /// Number of concurrent engine batches.
    pub(crate) lanes: usize,
    /// Jobs, each of a different tenant.
    pub(crate) jobs: Vec<Job>,
}

/// A job that trains on activations from the device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    /// Total number of images.
    pub(crate) images: u64,
    /// Images per training step.
    pub(crate) training_batch: u64,
    /// Images per request. Requests for a training batch are sent at the same time.
    pub(crate) request: u64,
    /// Duration of an engine batch in seconds.
    pub(crate) seconds: LinearCost,
    /// Memory in bytes: fixed per session, plus samples in the engine batch.
    pub(crate) memory: LinearCost,
    /// Seconds per training step, during which the next batch is extracted.
    pub(crate) trainer_seconds: f64,
}

/// Linear function for costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinearCost {
    pub(crate) fixed: f64,
    pub(crate) per_sample: f64,
}

/// Rule for admitting requests and choosing batch sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// As on hosts: `Device` within a `Ledger`. Stages are learned from an initial estimate that is 4.4 times
    /// too low, as on a host.
    Frostline,
    /// As in HAPI's store without adaptation: requests occupy memory for the network and a batch with this
    /// number of samples from arrival to completion. Lanes process requests in turn. If the memory is full,
    /// new requests and the corresponding jobs fail.
    Fixed(usize),
    /// Batch adaptation as in HAPI: a solver (20 ms) assigns at least 25 samples to the waiting requests that
    /// fit in memory, and the remaining memory to the first requests. This is a corner of the linear program.
    /// The other requests wait for the next solution. HAPI is stricter: there such jobs failed.
    HapiLp,
}

impl Display for Policy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Frostline => formatter.write_str("frostline"),
            Self::Fixed(samples) => write!(formatter, "fixed:{samples}"),
            Self::HapiLp => formatter.write_str("hapi-lp"),
        }
    }
}

impl Scenario {
    /// HAPI's experiment with different networks for all jobs.
    ///
    /// The publication does not state the GPU memory, so the scenario is calibrated to the published results.
    /// Two lanes and 32 GiB represent two GPUs with 16 GiB. A network uses 1.2 GB, and 10 MB per sample, so
    /// the linear program has a solution for 11 jobs with two requests each (22 x 1.45 GB) and none for 12
    /// jobs, where HAPI's jobs began to fail. With 2.3 ms per sample and 6.2 s per training step, one job
    /// runs for 51 s, and eight jobs keep two lanes busy for 79 s.
    pub(crate) fn hapi(jobs: u32) -> Self {
        let job = |index: u32| Job {
            images: 8000,
            training_batch: 1000,
            request: 500,
            seconds: LinearCost {
                fixed: 0.005,
                per_sample: 0.0023,
            },
            memory: LinearCost {
                fixed: 1.2e9 + 1e6 * f64::from(index),
                per_sample: 1e7,
            },
            trainer_seconds: 6.2,
        };
        Self {
            memory_bytes: 32 << 30,
            lanes: 2,
            jobs: (0..jobs).map(job).collect(),
        }
    }
}

impl Job {
    pub(super) fn time(&self, samples: usize) -> Duration {
        duration(self.seconds.at(samples))
    }

    pub(super) fn session(&self) -> u64 {
        self.memory.fixed as u64
    }

    pub(super) fn bytes(&self, samples: usize) -> u64 {
        (self.memory.per_sample * samples as f64) as u64
    }
}

impl LinearCost {
    fn at(self, samples: usize) -> f64 {
        self.fixed + self.per_sample * samples as f64
    }
}

pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
}
