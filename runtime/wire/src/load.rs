//! How busy a host is, and what of it is a tenant's.

use serde::{Deserialize, Serialize};

/// How busy a host is, and what of it falls to who asks: `GET /v1/load`. What a host of an earlier version does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// What the host calls itself: it stays the same when its address does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Extractions waiting.
    pub queued: u64,
    /// Extractions running.
    pub running: u64,
    /// Engine lanes.
    pub lanes: u64,
    /// Samples answered per second over the last seconds.
    pub samples_per_second: f64,
    /// The tenant's part of device time, 0 to 1: its weight over those of all that are at work, it among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Seconds that the tenant's work waited for a lane lately, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_seconds: Option<f64>,
    /// Samples of one guest call, while memory allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<u64>,
    /// Whether the processor computes int8 dot products without saturation (VNNI); hosts of earlier versions omit it.
    #[serde(skip_serializing_if = "crate::messages::is_false")]
    pub exact_int8: bool,
    /// Stages of the tenant's models that have run here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageLoad>,
    /// What the host and its lanes may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLoad>,
    /// What lanes may hold of a GPU's memory, where they run on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<MemoryLoad>,
}

/// What is known of a stage on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageLoad {
    /// SHA-256 of the model, lower-case hex.
    pub model: String,
    /// The tensor it takes.
    pub from: String,
    /// The cut it makes.
    pub to: String,
    /// The least batch that is as quick, by row, as any: what a run of the engine has where so many rows wait.
    pub knee: u64,
    /// Seconds of a row on one lane in such a batch.
    pub seconds_per_row: f64,
}

/// Bytes of memory that a host accounts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLoad {
    /// What it may hold, lanes included.
    pub budget: u64,
    /// What it holds.
    pub held: u64,
}

impl Load {
    /// What is known of the stage of `model` that ends at the cut `to`.
    pub fn stage(&self, model: &str, to: &str) -> Option<&StageLoad> {
        self.stages
            .iter()
            .find(|stage| stage.model == model && stage.to == to)
    }

    /// Rows a second that the tenant's share of the lanes makes of `stage`.
    pub fn rows_per_second(&self, stage: &StageLoad) -> Option<f64> {
        let rate = self.share? * self.lanes as f64 / stage.seconds_per_row;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_of_earlier_versions_tell_is_read() {
        let text = r#"{"queued":1,"running":2,"lanes":2,"samples_per_second":41.5}"#;
        let load: Load = serde_json::from_str(text).unwrap();
        assert_eq!((load.queued, load.share, load.grant), (1, None, None));
        assert_eq!(serde_json::to_string(&load).unwrap(), text);
    }

    #[test]
    fn a_share_is_one_of_all_lanes() {
        let stage = |seconds_per_row| StageLoad {
            model: "5e".to_owned(),
            from: "data".to_owned(),
            to: "cut".to_owned(),
            knee: 8,
            seconds_per_row,
        };
        let load = Load {
            lanes: 2,
            share: Some(0.25),
            stages: vec![stage(0.1)],
            ..Load::default()
        };
        let known = load.stage("5e", "cut").unwrap();
        assert_eq!(load.rows_per_second(known), Some(5.0));
        assert_eq!(load.rows_per_second(&stage(0.0)), None);
        assert_eq!(load.stage("5e", "other"), None);
    }
}
