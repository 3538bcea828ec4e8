//! Host load and tenant share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Host load and share of the requesting tenant: `GET /v1/load`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Name of the host. It does not depend on the address.
    pub name: Option<String>,
    /// Number of waiting extractions.
    pub queued: u64,
    /// Number of running extractions.
    pub running: u64,
    /// Number of lanes.
    pub lanes: u64,
    /// Samples answered per second, averaged over the last seconds.
    pub samples_per_second: f64,
    /// The tenant's part of device time (0 to 1). This is the ratio between the tenant's weight and the sum
    /// over all tenants with an extraction, including this one.
    pub share: Option<f64>,
    /// Longest recent wait for a lane in seconds, for work of this tenant.
    pub waited_seconds: Option<f64>,
    /// Maximum number of samples per guest call.
    pub grant: Option<u64>,
    /// True if the processor computes int8 dot products without saturation (VNNI).
    pub exact_int8: bool,
    /// Stages of the tenant's models that have executed rows of this tenant on this host.
    pub stages: Vec<StageLoad>,
    /// Memory of the host and all lanes.
    pub memory: Option<MemoryLoad>,
    /// GPU memory of the lanes, if they run on a GPU.
    pub device_memory: Option<MemoryLoad>,
    /// Remaining lifetime of the request's token in seconds. `None` if it does not expire.
    pub token_seconds: Option<u64>,
}

/// Rate of a stage on a host, measured with rows of the tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageLoad {
    /// SHA-256 of the model in lower-case hexadecimal.
    pub model: String,
    /// Input tensor of the stage.
    pub from: String,
    /// Cut at the end of the stage.
    pub to: String,
    /// Efficient batch size. Engine batches have this size if enough rows are waiting.
    pub efficient_batch: u64,
    /// Seconds per row on one lane at this batch size.
    pub seconds_per_row: f64,
}

/// Memory accounting of a host in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLoad {
    /// Memory budget, including lanes.
    pub budget: u64,
    /// Reserved memory.
    pub held: u64,
}

impl Load {
    /// Returns the stage of `model` that ends at the cut `to`, if it is known.
    pub fn stage(&self, model: &str, to: &str) -> Option<&StageLoad> {
        self.stages
            .iter()
            .find(|stage| stage.model == model && stage.to == to)
    }

    /// Returns the rows per second of `stage` on the tenant's share of the lanes.
    pub fn rows_per_second(&self, stage: &StageLoad) -> Option<f64> {
        let rate = self.share? * self.lanes as f64 / stage.seconds_per_row;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_of_all_lanes() {
        let stage = |seconds_per_row| StageLoad {
            model: "5e".to_owned(),
            from: "data".to_owned(),
            to: "cut".to_owned(),
            efficient_batch: 8,
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
