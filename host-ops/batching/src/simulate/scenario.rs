//! What is to be simulated.

use serde::Deserialize;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Images of all jobs together: a run for each takes a minute to simulate.
const IMAGES: u64 = 10_000_000;

/// A device, and the jobs that share it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Bytes that all runs and sessions may take together.
    pub memory_bytes: u64,
    /// Runs at a time.
    pub lanes: usize,
    /// Who runs what.
    pub policy: Policy,
    /// The jobs.
    pub jobs: Vec<Job>,
}

/// A job that trains with what the device extracts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Whose it is.
    pub tenant: String,
    /// The tenant's weight, 1 to 100.
    #[serde(default = "one")]
    pub weight: u32,
    /// Seconds after the beginning.
    #[serde(default)]
    pub arrives: f64,
    /// Images that it trains with.
    pub images: u64,
    /// Images of a training step.
    pub training_batch: u64,
    /// Images of a request; those of a training batch are sent together.
    pub request: u64,
    /// Seconds of a run, and of each of its samples.
    pub seconds: Line,
    /// Bytes of a session, and of each sample of a run.
    pub memory: Line,
    /// Seconds of a training step, during which the next batch is extracted.
    #[serde(default)]
    pub trainer_seconds: f64,
}

/// A part that always is there, and one for each sample.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Always.
    pub fixed: f64,
    /// For each sample.
    pub per_sample: f64,
}

/// Who runs what, how much at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Policy {
    /// As hosts do: [`Device`](crate::device::Device) within a [`Ledger`](crate::Ledger).
    Frostline,
    /// Every request at once, in batches of so many samples.
    Fixed(usize),
    /// Batches of those that wait, as HAPI's linear programme has them.
    HapiLp,
}

/// A scenario that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// A value out of its range.
    #[error("{key} is {value}; it must be {range}")]
    Range {
        /// Which.
        key: String,
        /// What it is.
        value: String,
        /// What it may be.
        range: String,
    },
    /// A job's tenant has another weight in another job.
    #[error("tenant {tenant:?} has weight {one} in one job and {other} in another; a tenant has one weight")]
    Weights {
        /// The tenant.
        tenant: String,
        /// A weight.
        one: u32,
        /// Another.
        other: u32,
    },
}

/// Not the name of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no policy; there are frostline, fixed:<samples, 1 to 100000> and hapi-lp")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let fixed = || {
            let samples = text.strip_prefix("fixed:")?.parse().ok()?;
            (1..=100_000).contains(&samples).then_some(Self::Fixed(samples))
        };
        match text {
            "frostline" => Ok(Self::Frostline),
            "hapi-lp" => Ok(Self::HapiLp),
            _ => fixed().ok_or_else(|| UnknownPolicy(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = UnknownPolicy;

    fn try_from(text: String) -> Result<Self, UnknownPolicy> {
        text.parse()
    }
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
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// [`ScenarioError`], with the key and its range.
    pub fn check(&self) -> Result<(), ScenarioError> {
        within("memory_bytes", self.memory_bytes, 1..=1 << 50)?;
        within("lanes", self.lanes, 1..=256)?;
        within("the number of jobs", self.jobs.len(), 1..=1024)?;
        for (index, job) in self.jobs.iter().enumerate() {
            job.check(&format!("jobs[{index}]"))?;
            let same = self.jobs.iter().find(|other| other.tenant == job.tenant);
            if let Some(other) = same.filter(|other| other.weight != job.weight) {
                return Err(ScenarioError::Weights {
                    tenant: job.tenant.clone(),
                    one: other.weight,
                    other: job.weight,
                });
            }
        }
        let images = self
            .jobs
            .iter()
            .fold(0_u64, |sum, job| sum.saturating_add(job.images));
        within("images of all jobs together", images, 1..=IMAGES)
    }
}

impl Job {
    fn check(&self, at: &str) -> Result<(), ScenarioError> {
        let key = |key: &str| format!("{at}.{key}");
        within(&key("the length of tenant"), self.tenant.len(), 1..=64)?;
        within(&key("weight"), self.weight, 1..=100)?;
        within(&key("images"), self.images, 1..=IMAGES)?;
        within(&key("training_batch"), self.training_batch, 1..=IMAGES)?;
        within(&key("request"), self.request, 1..=100_000)?;
        let (day, exabyte) = (86_400.0, 1e18);
        within(&key("arrives"), self.arrives, 0.0..=day)?;
        within(&key("trainer_seconds"), self.trainer_seconds, 0.0..=day)?;
        within(&key("seconds.fixed"), self.seconds.fixed, 0.0..=day)?;
        within(&key("seconds.per_sample"), self.seconds.per_sample, 1e-9..=day)?;
        within(&key("memory.fixed"), self.memory.fixed, 0.0..=exabyte)?;
        within(&key("memory.per_sample"), self.memory.per_sample, 0.0..=exabyte)
    }

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

fn one() -> u32 {
    1
}

fn within<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ScenarioError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ScenarioError::Range {
        key: key.to_owned(),
        value: value.to_string(),
        range: format!("{} to {}", range.start(), range.end()),
    })
}
