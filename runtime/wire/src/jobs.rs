//! Jobs as a host sees them, and where their time goes.

use frostline_tensor::shown_bytes;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use strum::{EnumCount, EnumIter, IntoEnumIterator};

/// What an image waits for, or is in, between its request and the last byte of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum JobStage {
    /// The extraction waits for its place.
    Place,
    /// Waits for memory.
    Memory,
    /// Is read from the store.
    Read,
    /// Is decoded.
    Decode,
    /// Waits for a lane.
    Lane,
    /// The network runs.
    Run,
    /// Its row is encoded.
    Encode,
    /// Its row waits until the client takes it.
    Send,
}

impl JobStage {
    /// All of them, in the order in which an image goes through them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// What goes on, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Place => "waiting for a place",
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

/// Seconds that images spent in each stage: of ten images that waited a second each, ten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
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
    /// The seconds of one stage.
    pub fn seconds_in(&self, stage: JobStage) -> f64 {
        let mut copy = *self;
        *copy.seconds_in_mut(stage)
    }

    /// The seconds of one stage, to be changed.
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

    /// Each stage's part of all, the largest first; none where nothing took any time.
    pub fn shares(&self) -> Vec<(JobStage, f64)> {
        let sum: f64 = JobStage::all().map(|stage| self.seconds_in(stage)).sum();
        let mut shares: Vec<_> = JobStage::all()
            .filter(|_| sum > 0.0)
            .map(|stage| (stage, self.seconds_in(stage) / sum))
            .collect();
        shares.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        shares
    }

    /// The largest parts in words: `78 % waiting for a lane, 12 % running the network`; what is below a twentieth is left out.
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

/// A job at one host: all extractions of a tenant that name the same trace, as those of one trainer do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    /// The trace's id, or that of the extraction where it names none.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// The split of its latest extraction.
    pub split: String,
    /// The model of its latest extraction, where it has one.
    pub model: Option<String>,
    /// When its first extraction began, in seconds since 1970.
    pub started_at: u64,
    /// When its latest extraction began.
    pub active_at: u64,
    /// Extractions waiting for a place.
    pub queued: u64,
    /// Extractions running.
    pub running: u64,
    /// Extractions that ended.
    pub extractions: u64,
    /// Images answered.
    pub images: u64,
    /// Whether an admin has cancelled it.
    pub cancelled: bool,
    /// Where the time of its images went.
    pub seconds: StageSeconds,
}

/// A job, and who has now what it may be waiting for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
    /// The host's lanes.
    pub lanes: u64,
    /// Tenants with lanes that run for them now, and how many.
    pub lane_holders: Vec<(String, u64)>,
    /// Bytes of memory that the host may hold.
    pub memory_budget: u64,
    /// Tenants that hold some, and how many bytes.
    pub memory_holders: Vec<(String, u64)>,
    /// Extractions that may run on the host.
    pub places: u64,
    /// Tenants with extractions running now, and how many.
    pub place_holders: Vec<(String, u64)>,
}

impl JobDetail {
    /// Where its time goes, and who holds what it waits for the most, in words:
    /// `78 % waiting for a lane, 15 % decoding; tenant beta holds 3 of 4 lanes`.
    pub fn summary(&self) -> String {
        let shares = self.job.seconds.shares();
        let Some((most, _)) = shares.first() else {
            return "no image has been through it yet".to_owned();
        };
        let (holders, all, unit) = match most {
            JobStage::Lane => (&self.lane_holders, self.lanes, "lanes"),
            JobStage::Memory => (&self.memory_holders, self.memory_budget, "memory"),
            JobStage::Place => (&self.place_holders, self.places, "places"),
            _ => return self.job.seconds.summary(),
        };
        let mut summary = self.job.seconds.summary();
        let shown = |amount: u64| match most {
            JobStage::Memory => shown_bytes(amount as f64),
            _ => amount.to_string(),
        };
        if let Some((tenant, held)) = holders.iter().max_by_key(|(_, held)| *held) {
            let (held, all) = (shown(*held), shown(all));
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
            "nobody holds any"
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
