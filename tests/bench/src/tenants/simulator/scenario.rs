//! What is to be simulated.

use std::fmt::Display;
use std::time::Duration;

/// A device, and the jobs that share it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    /// Bytes that all runs and sessions may take together.
    pub(crate) memory_bytes: u64,
    /// Runs at a time.
    pub(crate) lanes: usize,
    /// The jobs, each of a tenant of its own.
    pub(crate) jobs: Vec<Job>,
}

/// A job that trains with what the device extracts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    /// Images that it trains with.
    pub(crate) images: u64,
    /// Images of a training step.
    pub(crate) training_batch: u64,
    /// Images of a request; those of a training batch are sent together.
    pub(crate) request: u64,
    /// Seconds of a run, and of each of its samples.
    pub(crate) seconds: Line,
    /// Bytes of a session, and of each sample of a run.
    pub(crate) memory: Line,
    /// Seconds of a training step, during which the next batch is extracted.
    pub(crate) trainer_seconds: f64,
}

/// A part that always is there, and one for each sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    /// Always.
    pub(crate) fixed: f64,
    /// For each sample.
    pub(crate) per_sample: f64,
}

/// Who runs what, how much at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// As hosts do: `Device` within a `Ledger`; stages are learnt from a guess 4.4 times too low, as on a host.
    Frostline,
    /// Every request lies in memory with its network and a batch of so many samples from when it comes until it is served, as in HAPI's store
    /// without adaptation; who does not fit fails, and with it its job. Lanes take turns among them.
    Fixed(usize),
    /// As HAPI's batch adaptation: a solver of 20 ms gives all that wait at least 25 samples, as many as fit, and what is left to the first
    /// ones, a corner of its linear programme. Who does not get in waits for the next solution, which is kinder than HAPI was: there jobs failed.
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
    /// HAPI's experiment with so many jobs, each with a network of its own. Its published figures lack the memory of the GPUs, so it was
    /// calibrated by what was published: two lanes and 32 GiB (two GPUs of 16 GiB); a network of 1.2 GB and 10 MB a sample, at which the
    /// programme has a solution for 11 jobs with two requests each (22 x 1.45 GB) and none for 12, where HAPI's jobs began to fail; 2.3 ms a
    /// sample and 6.2 s a training step, at which one job takes 51 s and eight keep two lanes busy for 79 s.
    pub(crate) fn hapi(jobs: u32) -> Self {
        let job = |index: u32| Job {
            images: 8000,
            training_batch: 1000,
            request: 500,
            seconds: Line {
                fixed: 0.005,
                per_sample: 0.0023,
            },
            memory: Line {
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

impl Line {
    fn at(self, samples: usize) -> f64 {
        self.fixed + self.per_sample * samples as f64
    }
}

pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
}
