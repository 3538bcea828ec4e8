use crate::{Event, Events, Int8Note, Quality, Received, Tables};
use frostline_client::Notices;
use frostline_wire::Split;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// Forwards the client's notices to `events`.
pub(crate) fn notices(events: &Events) -> Notices {
    let events = Arc::clone(events);
    Arc::new(move |notice| events(Event::Notice(notice)))
}

/// Result of a finished job.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Path of the tuned model.
    pub model: PathBuf,
    /// Names of the classes, labels or targets, in output order.
    pub classes: Vec<String>,
    /// The split at the end of the job.
    pub split: Split,
    /// Validation quality before the first step.
    pub baseline: Quality,
    /// The epoch that produced the weights, counted from 1.
    pub epoch: u32,
    /// Validation quality after that epoch.
    pub validation: Quality,
    /// Training loss of the last epoch.
    pub loss: f64,
    /// Total body bytes received since the job was started or resumed.
    pub bytes_received: u64,
    /// Bytes received, split up by purpose.
    pub received: Received,
    /// Wall time of the job in seconds.
    pub seconds: f64,
    /// Number of skipped bad samples.
    pub skipped: u64,
}

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Prediction quality.
    #[serde(flatten)]
    pub quality: Quality,
    /// Number of samples used.
    pub samples: usize,
    /// True if the samples are exactly those that the model's own training held out of this data. Otherwise
    /// they are the requested part, the `validation/` part, or all samples.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// Validation quality in training, if its frozen layers were in int8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int8: Option<Int8Note>,
    /// Quality by class, label or number.
    #[serde(flatten)]
    pub tables: Tables,
}
