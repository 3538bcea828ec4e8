use frostline_tensor::Precision;
use frostline_wire::OutwardLinks;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Callback for notices, in order. Called from any thread, and must return quickly.
pub type Notices = Arc<dyn Fn(Notice) + Send + Sync>;

/// Communication events. Serialized as an object whose `event` field contains the variant name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::VariantNames)]
#[serde(tag = "event", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Notice {
    /// The store contains broken links or invalid keys (an empty segment, `.`, `..`, a control character, not
    /// UTF-8). These objects are skipped.
    NoKeys {
        /// Number of skipped names.
        count: u64,
        /// Names to show, escaped and shortened.
        names: Vec<String>,
    },
    /// The data root contains links to outside. These objects are skipped.
    OutwardLinks {
        /// Number of links, and an example.
        #[serde(flatten)]
        links: OutwardLinks,
    },
    /// A piece of an upload was handed to the connection. Emitted every 256 KiB, which suits progress bars
    /// but not logs.
    Uploading {
        /// Kind of the upload.
        what: UploadKind,
        /// Name of the upload on the host.
        name: String,
        /// Bytes sent until now, including earlier attempts.
        sent: u64,
        /// Total size in bytes.
        bytes: u64,
    },
    /// An upload was interrupted and will be resumed.
    UploadRetry {
        /// Address of the host.
        host: String,
        /// Kind of the upload.
        what: UploadKind,
        /// Name of the upload on the host.
        name: String,
        /// Total size in bytes.
        bytes: u64,
        /// Number of consecutive attempts without progress. Counting starts at 1.
        attempt: u32,
        /// Seconds until the next attempt.
        wait_seconds: f64,
        /// Remaining seconds before an outage fails the upload, if no host answers.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_seconds: Option<f64>,
        /// Cause of the interruption.
        reason: String,
    },
    /// Missing samples are being requested again.
    Retry {
        /// Address of the host.
        host: String,
        /// Number of missing samples.
        lost: usize,
        /// Number of consecutive attempts without samples. Counting starts at 1. An immediate move
        /// to another host does not count.
        attempt: u32,
        /// Seconds until the samples are requested again.
        wait_seconds: f64,
        /// Remaining seconds before an outage fails the job, if no host answers.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_seconds: Option<f64>,
        /// Cause of the retry.
        reason: String,
    },
    /// A host became available or unavailable.
    Host {
        /// Address of the host.
        host: String,
        /// New state of the host.
        state: HostState,
        /// Cause of the change.
        reason: String,
        /// Remaining seconds before an outage fails the job, if no host answers.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_seconds: Option<f64>,
    },
    /// A host computes the layers in another precision than requested, because it has no GPU. Emitted for the
    /// first such host of a job.
    Precision {
        /// Address of the host.
        host: String,
        /// Requested precision.
        permitted: Precision,
        /// Precision of the host.
        computed: Precision,
    },
}

impl Notice {
    /// Returns the text about a host or machine that does not compute in the requested precision.
    pub fn precision_text(place: &str, permitted: Precision) -> String {
        format!(
            "{place} computes frozen layers in full precision (f32), because {permitted} requires an NVIDIA GPU"
        )
    }
}

/// Availability of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// The host receives requests.
    Up,
    /// Other hosts replace this one, and the client probes it.
    Down,
}

/// Upload kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum UploadKind {
    /// A tenant's component.
    Guest,
    /// The frozen layers.
    Model,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_serialize_as_scripts_expect() {
        let down = Notice::Host {
            host: "http://a:8080".to_owned(),
            state: HostState::Down,
            reason: "gone".to_owned(),
            left_seconds: None,
        };
        assert_eq!(
            serde_json::to_value(down).unwrap(),
            serde_json::json!({"event": "host", "host": "http://a:8080", "state": "down", "reason": "gone"})
        );
        let links = OutwardLinks {
            count: 2,
            first: "a -> /b".to_owned(),
        };
        let notice = Notice::OutwardLinks { links };
        let text = serde_json::to_value(&notice).unwrap();
        assert_eq!(
            text,
            serde_json::json!({"event": "outward_links", "count": 2, "first": "a -> /b"})
        );
        assert_eq!(serde_json::from_value::<Notice>(text).unwrap(), notice);
    }
}
