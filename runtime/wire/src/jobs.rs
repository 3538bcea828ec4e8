//! Host-side view of jobs, including the time spent per stage.

use frostline_tensor::format_bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use strum::{EnumCount, EnumIter, IntoEnumIterator};

/// Processing stage of an image. Stages cover the time from the request to the last byte of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum JobStage {
    /// The extraction waits for a slot.
    Place,
    /// Waiting for memory.
    Memory,
    /// Reading from the store.
    Read,
    /// Decoding and preprocessing.
    Decode,
    /// Waiting for a lane.
    Lane,
    /// Running the network.
    Run,
    /// Encoding the row.
    Encode,
    /// Waiting for the client to receive the row.
    Send,
}

impl JobStage {
    /// Returns all stages in the order of processing.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Returns a description for display.
    pub fn words(self) -> &'static str {
        match self {
            Self::Place => "waiting for an extraction slot",
            Self::Memory => "waiting for memory",
            Self::Read => "reading objects",
            Self::Decode => "decoding",
            Self::Lane => "waiting for a lane",
            Self::Run => "running the network",
            Self::Encode => "encoding rows",
            Self::Send => "waiting for the client to take rows",
        }
    }
}

/// Seconds of images per stage, summed over all images. For example, ten images that waited one second each
/// count as ten seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StageSeconds {
    /// [`JobStage::Place`].
    pub place: f64,
    /// [`JobStage::Memory`].
    pub memory: f64,
    /// [`JobStage::Read`].
    pub read: f64,
    /// [`JobStage::Decode`].
    pub decode: f64,
    /// [`JobStage::Lane`].
    pub lane: f64,
    /// [`JobStage::Run`].
    pub run: f64,
    /// [`JobStage::Encode`].
    pub encode: f64,
    /// [`JobStage::Send`].
    pub send: f64,
}

impl StageSeconds {
    /// Returns the seconds of a stage.
    pub fn seconds_in(&self, stage: JobStage) -> f64 {
        let mut copy = *self;
        *copy.seconds_in_mut(stage)
    }

    /// Returns a mutable reference to the seconds of a stage.
    pub fn seconds_in_mut(&mut self, stage: JobStage) -> &mut f64 {
        match stage {
            JobStage::Place => &mut self.place,
            JobStage::Memory => &mut self.memory,
            JobStage::Read => &mut self.read,
            JobStage::Decode => &mut self.decode,
            JobStage::Lane => &mut self.lane,
            JobStage::Run => &mut self.run,
            JobStage::Encode => &mut self.encode,
            JobStage::Send => &mut self.send,
        }
    }

    /// Returns the fraction of each stage in descending order. Empty if the sum is 0.
    pub fn shares(&self) -> Vec<(JobStage, f64)> {
        let sum: f64 = JobStage::all().map(|stage| self.seconds_in(stage)).sum();
        let mut shares: Vec<_> = JobStage::all()
            .filter(|_| sum > 0.0)
            .map(|stage| (stage, self.seconds_in(stage) / sum))
            .collect();
        shares.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        shares
    }

    /// Formats the largest fractions. Example: `78 % waiting for a lane, 12 % running the network`. Stages
    /// below 5 % are omitted.
    pub fn summary(&self) -> String {
        let shares = self.shares();
        let large = shares.iter().filter(|(_, share)| *share >= 0.05);
        let words: Vec<String> = large
            .map(|(stage, share)| format!("{:.0} % {}", share * 100.0, stage.words()))
            .collect();
        words.join(", ")
    }
}

impl AddAssign for StageSeconds {
    fn add_assign(&mut self, other: Self) {
        for stage in JobStage::all() {
            *self.seconds_in_mut(stage) += other.seconds_in(stage);
        }
    }
}

/// Job on one or several hosts. A job consists of all extractions by a tenant with the same trace. A trainer uses a single
/// trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobInfo {
    /// Trace id, or extraction id if the request contains no trace.
    pub id: String,
    /// Tenant name.
    pub tenant: String,
    /// Split of the most recent extraction.
    pub split: String,
    /// Model of the most recent extraction, if any.
    pub model: Option<String>,
    /// Start time of the first extraction (Unix seconds).
    pub started_at: u64,
    /// Start time of the most recent extraction (Unix seconds).
    pub active_at: u64,
    /// Number of extractions waiting for a slot.
    pub queued: u64,
    /// Number of running extractions.
    pub running: u64,
    /// Number of extractions that ran and ended, including failed and cancelled ones.
    pub extractions: u64,
    /// Number of answered images.
    pub images: u64,
    /// True if an admin cancelled the job.
    pub cancelled: bool,
    /// Names of the hosts that received extractions of the job.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Total image seconds per stage.
    pub seconds: StageSeconds,
}

/// Job with the current holders of the resources that the job may be waiting for, summed over its hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobDetail {
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
    /// Number of lanes.
    pub lanes: u64,
    /// Number of busy lanes by tenant.
    pub lane_holders: Vec<(String, u64)>,
    /// Memory budget in bytes.
    pub memory_budget: u64,
    /// Reserved bytes by tenant.
    pub memory_holders: Vec<(String, u64)>,
    /// Maximum number of concurrent extractions.
    pub places: u64,
    /// Number of running extractions by tenant.
    pub place_holders: Vec<(String, u64)>,
}

impl JobDetail {
    /// Formats the time per stage and the main holder of the resource with the longest wait. Example: `78 %
    /// waiting for a lane, 15 % decoding; tenant beta holds 3 of 4 lanes now`.
    pub fn summary(&self) -> String {
        let shares = self.job.seconds.shares();
        let Some((most, _)) = shares.first() else {
            return "no image has been answered yet".to_owned();
        };
        let (holders, all, unit) = match most {
            JobStage::Lane => (&self.lane_holders, self.lanes, "lanes"),
            JobStage::Memory => (&self.memory_holders, self.memory_budget, "memory"),
            JobStage::Place => (&self.place_holders, self.places, "extraction slots"),
            _ => return self.job.seconds.summary(),
        };
        let mut summary = self.job.seconds.summary();
        if let Some((tenant, held)) = holders.iter().max_by_key(|(_, held)| *held) {
            let [held, all] = [*held, all].map(|amount| match most {
                JobStage::Memory => format_bytes(amount as f64),
                _ => amount.to_string(),
            });
            summary.push_str(&format!("; tenant {tenant} holds {held} of {all} {unit} now"));
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(seconds: StageSeconds) -> JobDetail {
        JobDetail {
            job: JobInfo {
                id: "4bf9".to_owned(),
                tenant: "acme".to_owned(),
                split: "layer2".to_owned(),
                model: None,
                started_at: 0,
                active_at: 0,
                queued: 0,
                running: 1,
                extractions: 0,
                images: 0,
                cancelled: false,
                hosts: Vec::new(),
                seconds,
            },
            lanes: 4,
            lane_holders: vec![("acme".to_owned(), 1), ("beta".to_owned(), 3)],
            memory_budget: 100,
            memory_holders: Vec::new(),
            places: 8,
            place_holders: Vec::new(),
        }
    }

    #[test]
    fn a_summary_names_the_largest_parts_and_who_holds_what_is_waited_for() {
        let mut seconds = StageSeconds {
            lane: 7.8,
            run: 1.2,
            decode: 0.9,
            encode: 0.1,
            ..StageSeconds::default()
        };
        assert_eq!(
            detail(seconds).summary(),
            "78 % waiting for a lane, 12 % running the network, 9 % decoding; tenant beta holds 3 of 4 lanes now"
        );
        seconds.memory = 90.0;
        assert_eq!(
            detail(seconds).summary(),
            "90 % waiting for memory, 8 % waiting for a lane",
            "no tenant holds memory"
        );
        let mut held = detail(seconds);
        held.memory_budget = 8_000_000_000;
        held.memory_holders = vec![("beta".to_owned(), 6_400_000_000)];
        assert!(
            held.summary()
                .ends_with("; tenant beta holds 6.4 GB of 8.0 GB memory now"),
            "{}",
            held.summary()
        );
        seconds.read = 900.0;
        assert_eq!(
            detail(seconds).summary(),
            "90 % reading objects, 9 % waiting for memory"
        );
        assert!(detail(StageSeconds::default()).summary().contains("no image"));
    }
}
