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

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Where the tuned model was written.
    pub model: PathBuf,
    /// Names of classes, labels or targets, in the order of the model's outputs.
    pub classes: Vec<String>,
    /// The split that was used.
    pub split: Split,
    /// On the validation samples, before the first step.
    pub baseline: Quality,
    /// The epoch after which the model's weights are, from 1.
    pub epoch: u32,
    /// On the validation samples after that epoch.
    pub validation: Quality,
    /// Loss of the last epoch.
    pub loss: f64,
    /// Body bytes received in all, since the job was started or resumed.
    pub bytes_received: u64,
    /// The same by what they were for.
    pub received: Received,
    /// Wall time of the job.
    pub seconds: f64,
    /// Bad samples that were skipped.
    pub skipped: u64,
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// How well the model does.
    #[serde(flatten)]
    pub quality: Quality,
    /// Samples that were used.
    pub samples: usize,
    /// Whether they are what the model's own training held out of these data, and no others; else they are the `validation/` part, or all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// Validation quality in training, if its frozen layers were in int8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int8: Option<Int8Note>,
    /// The same for each class, label or number.
    #[serde(flatten)]
    pub tables: Tables,
}
