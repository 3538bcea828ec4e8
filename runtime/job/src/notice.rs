use frostline_wire::OutwardLinks;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Receives what happens on the way, from any thread, in order; it must not block for long.
pub type Notices = Arc<dyn Fn(Notice) + Send + Sync>;

/// What happens between a client and its hosts. Serializes to objects that say in `event` which one they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::VariantNames)]
#[serde(tag = "event", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Notice {
    /// The store holds names that are no keys (an empty segment, `.`, `..`, a control character, not UTF-8) or links that lead nowhere;
    /// they are no samples.
    NoKeys {
        /// How many.
        count: u64,
        /// The first few, escaped and shortened.
        names: Vec<String>,
    },
    /// The data root holds links that lead out of it; they are no samples.
    OutwardLinks {
        /// How many, and where the first leads.
        #[serde(flatten)]
        links: OutwardLinks,
    },
    /// A part of an upload was handed to the connection. Comes for every 256 KB: for progress bars, not for logs.
    Uploading {
        /// What is sent.
        what: UploadKind,
        /// Its name on the host.
        name: String,
        /// Bytes until now, those of earlier attempts included.
        sent: u64,
        /// All of them.
        bytes: u64,
    },
    /// An upload broke off and goes on where it did.
    UploadRetry {
        /// The host.
        host: String,
        /// What is sent.
        what: UploadKind,
        /// Its name on the host.
        name: String,
        /// Its size.
        bytes: u64,
        /// How often in a row nothing came; 1 is the first repetition.
        attempt: u32,
        /// Seconds until the next attempt.
        wait_seconds: f64,
        /// Seconds from now on that the host is waited for, where it does not answer at all.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_seconds: Option<f64>,
        /// What happened.
        reason: String,
    },
    /// Samples got lost on the way and are asked for again.
    Retry {
        /// The host.
        host: String,
        /// Samples that are missing.
        lost: usize,
        /// How often in a row nothing came; 1 is the first repetition, 0 where another host is asked at once or some came.
        attempt: u32,
        /// Seconds until they are asked for again.
        wait_seconds: f64,
        /// Seconds from now on that hosts are waited for, where none answers at all.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_seconds: Option<f64>,
        /// What happened.
        reason: String,
    },
    /// One of several hosts cannot be used for now, or can be used again.
    Host {
        /// Its address.
        host: String,
        /// Which of the two.
        state: HostState,
        /// What happened.
        reason: String,
        /// Seconds from now on that hosts are waited for, where none answers at all.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_seconds: Option<f64>,
    },
}

/// Whether a host is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// It is asked for its share of the samples.
    Up,
    /// The others do its work; it is looked at again from time to time.
    Down,
}

/// What is uploaded.
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
